#!/usr/bin/env bash
# Runs random sequences on sixteen threads for MINUTES (10); descriptors, mappings and memory must stay within the
# limits of tests/sequences/soak.rs.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
choose_driver
export MINUTES=${MINUTES:-10}
say "soaking for $MINUTES minutes: heap and resident memory at the end of each line"
VKGDR_TEST_LAYERS=${VKGDR_TEST_LAYERS:-faults} cargo test --quiet --locked --package vkgdr --test sequences -- \
    --ignored --exact soak::the_resources_of_the_process_stay_flat --nocapture
