# Sourced by run, which sets $sim, the simulator's folder, and $here: the Vulkan layers that VKGDR_TEST_LAYERS names.
# shellcheck shell=sh disable=SC2154 # set by run

layers=
case ${VKGDR_TEST_LAYERS-} in
    '' | none) ;;
    faults) layers=VK_LAYER_VKGDR_faults ;;
    validation) layers=VK_LAYER_VKGDR_messenger:VK_LAYER_VKGDR_faults:VK_LAYER_KHRONOS_validation ;;
    *) die "VKGDR_TEST_LAYERS is '$VKGDR_TEST_LAYERS'; it must be none, faults or validation" ;;
esac

if [ -n "$layers" ]; then
    # Mesa's implicit device-selection layer calls the driver by itself, and crashes on an injected failure.
    export NODEVICE_SELECT=1
    [ -e "$sim/vklayers/libvklayer.so" ] || die "the test layers are not built: run \`make -C $here\`"
    export VK_INSTANCE_LAYERS="$layers"
    # Newer loaders order layers as listed, older ones (1.3.239) as found: hence each of ours has a folder of its own,
    # with the system's in between. VK_LAYER_PATH would replace the loader's own search, and a filter drop our layers.
    unset VK_LAYER_PATH VK_LOADER_LAYERS_DISABLE
    folders=$sim/vklayers/messenger:$sim/vklayers/faults
    for dir in /usr/share/vulkan /usr/local/share/vulkan /etc/vulkan ${VULKAN_SDK:+"$VULKAN_SDK/share/vulkan"}; do
        [ -d "$dir/explicit_layer.d" ] && folders=$folders:$dir/explicit_layer.d
    done
    export VK_ADD_LAYER_PATH="$folders${VK_ADD_LAYER_PATH:+:$VK_ADD_LAYER_PATH}"
fi
# The validation layer keeps a cache file in it.
[ "${VKGDR_TEST_LAYERS-}" != validation ] || export XDG_CACHE_HOME="$sim/cache"
