/**
 * @file
 * vkgdr for C++17: handles that close themselves, and errors as exceptions.
 *
 * A thin layer over vkgdr.h, header only. Everything is in the scope `vkgdr`, which is a struct rather than a
 * namespace: the C header uses that name for a type. So `using namespace vkgdr` is not possible.
 *
 * Objects may be used by several threads at a time, but not while one of them moves, frees or destroys the object.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef VKGDR_HPP
#define VKGDR_HPP

#include "vkgdr_base.hpp"
#include "vkgdr_device.hpp"
#include "vkgdr_memory.hpp"
#include "vkgdr_pool.hpp"
#include "vkgdr_ring.hpp"

#endif  // VKGDR_HPP
