#!/usr/bin/env bash
# Prints the machine's properties: GPU, driver, PCI, CPU, system, Vulkan. Every property is optional; the exit code
# tells only whether a Vulkan device was found.
set -u -o pipefail

section() { printf '\n---- %s\n' "$*"; }

try() { # a command that may be missing or hang
    section "$*"
    timeout --kill-after=2 10 "$@" 2>&1 || echo "(exit code $?)"
}

files() { # FILE...: prints names and contents of existing files
    local file
    for file in "$@"; do
        [ -r "$file" ] && section "$file" && cat "$file"
    done
}

pci() { # the GPU's PCI properties: BAR sizes, link, IOMMU, NUMA node
    local device name first last flags index
    for device in /sys/bus/pci/devices/*; do
        [ "$(cat "$device/vendor" 2>/dev/null)" = 0x10de ] || continue
        section "PCI ${device##*/}"
        for name in class device current_link_speed current_link_width max_link_speed max_link_width numa_node; do
            printf '%s: %s\n' "$name" "$(cat "$device/$name" 2>&1)"
        done
        echo "iommu_group: $(readlink "$device/iommu_group" || echo none)"
        index=0
        while read -r first last flags; do
            [ $((last)) -eq 0 ] ||
                printf 'region %d: %d MiB, flags %s\n' "$index" $(((last - first + 1) >> 20)) "$flags"
            index=$((index + 1))
        done <"$device/resource"
    done
}

cat "$VKGDR_BUNDLE/bundle.txt" "$VKGDR_SCRATCH/vulkan.txt"
section 'environment'
env | grep -E '^(VK|VKGDR|CUDA|NVIDIA|LD_)' | sort

# What the report needs comes first, since the stage may run out of time.
try nvidia-smi --query-gpu=name,driver_version,vbios_version,pci.bus_id,memory.total,compute_cap --format=csv
files /proc/driver/nvidia/version /proc/driver/nvidia/gpus/*/information /proc/driver/nvidia/params
section 'device nodes'
ls -l /dev/nvidia* 2>&1
pci

section 'CPU'
grep -m1 'model name' /proc/cpuinfo
echo "cores: $(nproc)"
cpu_flags=$(grep -m1 '^flags' /proc/cpuinfo)
for flag in sse4_1 avx avx2 avx512f avx512vl movdiri movdir64b clflushopt clwb constant_tsc hypervisor; do
    printf '%s: %s\n' "$flag" "$(grep -qw "$flag" <<<"$cpu_flags" && echo yes || echo no)"
done

section 'system'
uname -a
grep PRETTY_NAME /etc/os-release
getconf GNU_LIBC_VERSION
grep -E 'MemTotal|MemAvailable|Huge' /proc/meminfo
echo "IOMMU: $(find /sys/class/iommu -mindepth 1 -printf '%f ' 2>/dev/null)"
echo "kernel command line: $(cat /proc/cmdline 2>&1)"
echo "modules: $(grep -oE '^(nvidia|gdrdrv|ib_uverbs)[a-z_]*' /proc/modules 2>/dev/null | tr '\n' ' ')"
echo "infiniband: $(find /sys/class/infiniband -mindepth 1 -printf '%f ' 2>/dev/null)"
ulimit -a

# shellcheck source-path=SCRIPTDIR source=vulkan.sh
. "$VKGDR_BUNDLE/vulkan.sh"
found=$?

try "$VKGDR_SCRATCH/workspace/sim/run" "$VKGDR_SCRATCH/bin/vkgdr" doctor
try "$VKGDR_SCRATCH/workspace/sim/run" "$VKGDR_SCRATCH/bin/vkgdr" info
try nvidia-smi -L
try nvidia-smi -q
try lscpu
try lspci -vv -d 10de:
# Last, since run.sh shows the end of a failed stage's log.
[ $found -eq 0 ] || section 'no Vulkan device was found on the GPU'
exit $found
