# Sourced by facts.sh: prints what the Vulkan driver is and has. The exit status is 0 if a Vulkan device was found.
# shellcheck shell=bash disable=SC2154 # functions and folders are facts.sh's

# The places of a library, each file once, in the linker's order: $LD_LIBRARY_PATH, in which containers have the driver, then
# its cache.
places() { # LIBRARY
    local folder
    local -a folders
    IFS=: read -ra folders <<<"${LD_LIBRARY_PATH-}"
    {
        for folder in "${folders[@]}"; do
            [ -z "$folder" ] || [ ! -e "$folder/$1" ] || echo "$folder/$1"
        done
        PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | awk -v name="$1" '$1 == name { print $NF }'
    } | while IFS= read -r file; do echo "$(readlink -f "$file") $file"; done | awk '!seen[$1]++ { print $2 }'
}

section 'libraries of the Vulkan driver'
for library in libGLX_nvidia.so.0 libEGL_nvidia.so.0; do
    mapfile -t paths < <(places "$library")
    [ ${#paths[@]} -gt 0 ] || echo "$library: neither in LD_LIBRARY_PATH nor in the linker's cache"
    for file in "${paths[@]}"; do
        echo "$file:"
        timeout --kill-after=2 5 ldd "$file" 2>&1
    done
done

section 'libraries'
{
    PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>&1
    tr : '\n' <<<"${LD_LIBRARY_PATH-}" | while IFS= read -r folder; do
        [ -z "$folder" ] || find -H "$folder" -maxdepth 1 -name '*.so*'
    done
} | grep -E 'libcuda\.|vulkan|nvidia|libX11|libEGL|libgdrapi|libibverbs'
files /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json /usr/local/nvidia/share/vulkan/icd.d/*.json

if grep -q 'NONE FOUND' "$VKGDR_SCRATCH/vulkan.txt"; then
    section 'loader'
    VK_LOADER_DEBUG=all timeout --kill-after=2 12 "$VKGDR_SCRATCH/bin/vulkaninfo" --summary 2>&1
fi

info=$VKGDR_SCRATCH/vulkaninfo
timeout --kill-after=2 15 "$VKGDR_SCRATCH/workspace/sim/run" "$VKGDR_SCRATCH/bin/vulkaninfo" >"$info" 2>&1
status=$?
section 'Vulkan devices'
grep -E 'apiVersion|driverVersion|vendorID|deviceID|deviceType|deviceName|deviceUUID|driverName|driverInfo' "$info"
section 'Vulkan limits'
grep -E 'nonCoherentAtomSize|maxMemoryAllocation|minMemoryMapAlignment|minImportedHostPointer|maxBufferSize' "$info"
section 'Vulkan memory types and heaps'
awk '/^VkPhysicalDeviceMemoryProperties:/ { on = 1 } /^VkPhysicalDeviceFeatures:/ { on = 0 } on' "$info"
section 'Vulkan extensions for memory'
grep -E 'VK_(KHR|EXT|NV)_(external|memory|map_memory|pageable|host|buffer_device)' "$info" | sort -u
section "vulkaninfo (exit code $status)"
cat "$info"

[ $status -eq 0 ] && ! grep -q 'NONE FOUND' "$VKGDR_SCRATCH/vulkan.txt"
