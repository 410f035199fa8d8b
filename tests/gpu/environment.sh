# Sourced by run.sh, which sets $here and $scratch: the environment of all stages. Chooses the Vulkan driver, and stores a
# line about it in $vulkan.
# shellcheck shell=bash disable=SC2154 # set by run.sh

driver=${VKGDR_CUDA_DRIVER:-real}
case $driver in
    real | sim) ;;
    auto) driver=real ;;
    *) die "VKGDR_CUDA_DRIVER is '$driver'; it must be real or sim" ;;
esac

own=${VK_DRIVER_FILES:-${VK_ICD_FILENAMES-}} # the loader's order; the latter is the older name
unset CARGO_TARGET_DIR VKGDR_TEST_LAYERS VK_INSTANCE_LAYERS VK_LAYER_PATH VK_ICD_FILENAMES
export VKGDR_BUNDLE=$here VKGDR_SCRATCH=$scratch
export VKGDR_CUDA_DRIVER=$driver VKGDR_SIM_DIR=$scratch/sim
export VK_ADD_LAYER_PATH=$scratch/layers
export LD_LIBRARY_PATH=$scratch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export VKGDR_BENCH_DIR=$scratch/bench VKGDR_EXAMPLES_DIR=$scratch/examples
export XDG_CACHE_HOME=$scratch/cache
export NO_COLOR=1 CARGO_TERM_COLOR=never RUST_BACKTRACE=1
[ -n "${XDG_RUNTIME_DIR-}" ] || export XDG_RUNTIME_DIR=$scratch # vulkaninfo complains without one

# Whether vulkaninfo finds devices and all are NVIDIA's (PCI vendor 0x10de), so that Mesa's CPU driver is never taken
# for the GPU. $1 names drivers' manifests; if empty, the loader searches.
sees_only_nvidia() {
    local -a with=(env -u VK_DRIVER_FILES)
    [ -z "$1" ] || with=(env "VK_DRIVER_FILES=$1")
    local left=$((deadline - SECONDS))
    [ $left -gt 0 ] || { echo 'error: no time was left' >"$scratch/summary" && return 1; }
    # The first call after boot may load kernel modules and compile caches.
    "${with[@]}" timeout --kill-after=2 $((left < 30 ? left : 30)) "$scratch/bin/vulkaninfo" --summary \
        >"$scratch/summary" 2>&1
    case $? in 124 | 137) echo 'error: out of time' >>"$scratch/summary" ;; esac
    awk '/vendorID/ { if ($NF == "0x10de") yes++; else no++ } END { exit !(yes && !no) }' "$scratch/summary"
}

# Tries the user's own setting first, as it is, all within 45 seconds. NVIDIA's manifest may be outside the loader's search
# path. On a machine without X11 the library it names (libGLX_nvidia) may not load, while the EGL one does: hence the two
# manifests written here.
choose_vulkan_driver() {
    local manifest library deadline=$((SECONDS + 45))
    for library in libGLX_nvidia.so.0 libEGL_nvidia.so.0; do
        printf '{"file_format_version": "1.0.1", "ICD": {"library_path": "%s", "api_version": "1.3.0"}}\n' \
            "$library" >"$scratch/$library.json"
    done
    [ -z "$own" ] || own=$(absolute "$own")
    for manifest in ${own:+"$own"} '' {/usr/share,/etc,/usr/local/nvidia/share}/vulkan/icd.d/nvidia_icd*.json \
        "$scratch"/lib{GLX,EGL}_nvidia.so.0.json; do
        [ -z "$manifest" ] || [ "$manifest" = "$own" ] || [ -e "$manifest" ] || continue
        if sees_only_nvidia "$manifest"; then
            vulkan="Vulkan driver: ${manifest:-found by the loader}"
            if [ -n "$manifest" ]; then export VK_DRIVER_FILES=$manifest; else unset VK_DRIVER_FILES; fi
            return
        fi
        tried+="not ${manifest:-the default}: $(grep -iE 'deviceName|error|failed|cannot' "$scratch/summary" |
            head -3 | tr -s ' \n' ' ')"$'\n'
    done
    vulkan='Vulkan driver: NONE FOUND for the GPU'
    export VK_DRIVER_FILES=$scratch/libGLX_nvidia.so.0.json
}

# The number of tests at a time: one where a GPU admits one process at a time; otherwise as many as CPUs, at least 8, at most 16,
# where the smallest GPU has 2 GiB for each.
choose_threads() {
    local gpus mode memory most=16
    gpus=$(timeout --kill-after=2 10 nvidia-smi --query-gpu=compute_mode,memory.total --format=csv,noheader,nounits 2>/dev/null)
    while IFS=', ' read -r mode memory; do
        [[ $mode != Exclusive* ]] || { export NEXTEST_TEST_THREADS=1 && return; }
        [[ $memory =~ ^[0-9]+$ ]] || memory=0 # unknown
        [ $((memory / 2048)) -ge $most ] || most=$((memory / 2048))
    done <<<"$gpus"
    [ "$(nproc)" -ge $most ] || most=$(nproc)
    [ "$most" -le 8 ] || VKGDR_TEST_THREADS=$most
}

tried=
export VKGDR_TEST_THREADS=8
if [ "$driver" = real ]; then
    # Where containers mount the driver.
    for folder in /usr/local/nvidia/lib64 /usr/local/nvidia/lib; do
        [ -e "$folder/libcuda.so.1" ] && LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$folder
    done
    PATH=$PATH:/usr/local/nvidia/bin
    choose_vulkan_driver
    choose_threads
else
    vulkan='Vulkan driver: lavapipe, DRY RUN on the simulated CUDA driver'
    [ -z "${VKGDR_TEST_PROFILE-}" ] || vulkan+=" with the profile $VKGDR_TEST_PROFILE"
fi
printf '%s\n%s' "$vulkan" "$tried" >"$scratch/vulkan.txt"
