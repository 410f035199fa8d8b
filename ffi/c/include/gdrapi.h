/* The interface of gdrcopy 2.6, as libvkgdr.so.1 has it: the same names, values and layouts, so that programs
 * written for gdrcopy compile and run unchanged. https://github.com/NVIDIA/gdrcopy describes the original.
 *
 * Functions that return int give 0 or an error number of errno.h. Every function accepts NULL and handles that are closed, and
 * then returns EINVAL. All may be called on any thread; memory must not be unpinned, nor its gdr_t closed, while another thread
 * copies it. A thread must not be cancelled (pthread_cancel()) during a call: that ends the process. With
 * GDRCOPY_ENABLE_LOGGING in the environment at the first error, errors are explained on standard error.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef VKGDR_GDRAPI_H
#define VKGDR_GDRAPI_H

/* Programs ask by gdrcopy's guard whether its header is there. */
#ifndef __GDRAPI_H__
#  define __GDRAPI_H__
#endif

#include <stddef.h>
#include <stdint.h>

#define GDR_API_MAJOR_VERSION 2
#define GDR_API_MINOR_VERSION 6
#define MAJOR_VERSION_SHIFT   16
#define MINOR_VERSION_MASK    ((UINT32_C(1) << MAJOR_VERSION_SHIFT) - 1)
#define GDR_API_VERSION       ((GDR_API_MAJOR_VERSION << MAJOR_VERSION_SHIFT) | GDR_API_MINOR_VERSION)

/* The kernel module that gdrcopy needs at least; none is needed here. */
#define MINIMUM_GDRDRV_MAJOR_VERSION 2
#define MINIMUM_GDRDRV_MINOR_VERSION 0
#define MINIMUM_GDRDRV_VERSION       ((MINIMUM_GDRDRV_MAJOR_VERSION << MAJOR_VERSION_SHIFT) | MINIMUM_GDRDRV_MINOR_VERSION)

/* Memory is pinned in pages of 64 KiB. */
#define GPU_PAGE_SHIFT  16
#define GPU_PAGE_SIZE   (1UL << GPU_PAGE_SHIFT)
#define GPU_PAGE_OFFSET (GPU_PAGE_SIZE - 1)
#define GPU_PAGE_MASK   (~GPU_PAGE_OFFSET)

#ifdef __cplusplus
extern "C" {
#endif

/* A connection. */
struct gdr;
typedef struct gdr *gdr_t;

/* A handle of pinned memory. */
typedef struct gdr_mh_s {
    unsigned long h;
} gdr_mh_t;

typedef enum gdr_pin_flags {
    GDR_PIN_FLAG_DEFAULT = 0,
    GDR_PIN_FLAG_FORCE_PCIE = 1 /* the CPU reaches the memory through the PCIe BAR; EINVAL for memory that it caches */
} gdr_pin_flags_t;

typedef enum gdr_map_flags {
    GDR_MAP_FLAG_DEFAULT = 0,
    GDR_MAP_FLAG_REQ_WC_MAPPING = 1,
    GDR_MAP_FLAG_REQ_CACHE_MAPPING = 2,
    GDR_MAP_FLAG_REQ_DEVICE_MAPPING = 3 /* never given */
} gdr_map_flags_t;

typedef enum gdr_mapping_type {
    GDR_MAPPING_TYPE_NONE = 0,    /* not mapped */
    GDR_MAPPING_TYPE_WC = 1,      /* the CPU's stores are write-combined */
    GDR_MAPPING_TYPE_CACHING = 2, /* the CPU caches the memory */
    GDR_MAPPING_TYPE_DEVICE = 3,  /* never given */
    GDR_MAPPING_TYPE_MAX
} gdr_mapping_type_t;

typedef enum gdr_attr {
    GDR_ATTR_USE_PERSISTENT_MAPPING = 1,      /* 1 */
    GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE = 2, /* 1 */
    GDR_ATTR_USING_DMA_BUF_MMAP = 3,          /* 1 if memory of others can be mapped, 0 if memory of vkgdr alone */
    GDR_ATTR_MAX
} gdr_attr_t;

typedef struct gdr_info_v2 {
    uint64_t va;          /* the pinned device address; gdr_map() gives the host address of the same byte */
    uint64_t mapped_size; /* the bytes of the pages */
    uint32_t page_size;
    uint64_t tm_cycles;     /* 0 */
    uint32_t cycles_per_ms; /* 0 */
    unsigned mapped : 1;
    unsigned wc_mapping : 1;
    gdr_mapping_type_t mapping_type;
} gdr_info_v2_t;
typedef gdr_info_v2_t gdr_info_t;
/* The library's own gdr_get_info is for programs built with gdrcopy before 2.4, whose gdr_info_t ends before mapping_type. */
#define gdr_get_info gdr_get_info_v2

/* Initialises CUDA (cuInit), so that children that are forked later cannot use it. NULL, and an error number in errno, without a
 * CUDA driver, in a child that was forked from a process that had loaded it, and where nothing can be pinned (ENOTSUP): no GPU
 * lets the CPU map CUDA's memory, and the program has not opened a GPU by vkgdr_open() or its like. With VKGDR_GDR_OPEN=always in
 * the environment that is no error: for programs that open one later. */
gdr_t gdr_open(void);
/* Unpins what is still pinned. */
int gdr_close(gdr_t g);

/* Pins the pages that contain size bytes at a device address. Memory of libvkgdr.so.1 is kept alive;
 * existing memory of CUDA is pinned where the driver can map it, else EOPNOTSUPP, as for vkgdr's device memory, and is not kept
 * alive. EINVAL for an address that the driver does not know, for host and managed memory, for sizes beyond the last page of the
 * memory, and for flags that are not declared here. A size that was rounded up to whole pages may end one page behind the last.
 * p2p_token and va_space are ignored. */
int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t p2p_token, uint32_t va_space, gdr_mh_t *handle);
int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size, uint32_t flags, gdr_mh_t *handle);
/* Ends the mapping as well, if there is one. */
int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle);

/* 1 if the memory was freed while pinned, which can happen to existing memory only. */
int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int *flag);
int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info);

/* The pinned address is at va. The bytes of the pages around the memory must not be used. EAGAIN if it is mapped, ENODEV in a
 * forked child. EINVAL for a size of 0 or beyond the pages, for another mapping type than the memory's, and for an address of
 * CUDA's memory within a page. */
int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size);
int gdr_map_v2(gdr_t g, gdr_mh_t handle, void **va, size_t size, int flags);
/* EINVAL if nothing is mapped, or for a size of 0. va may be any address. */
int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size);

/* Copies between private memory and a mapping; EINVAL for bytes that are not within memory of libvkgdr.so.1, or within the
 * pinned pages of other memory. 0 bytes are copied from and to any address once the memory is mapped. On memory that is not
 * coherent they flush and invalidate whole atoms: two threads must not copy within one atom at the same time. Loads and stores
 * through the mapping do neither. */
int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size);
int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size);

/* 2 and 6, both. */
void gdr_runtime_get_version(int *major, int *minor);
int gdr_driver_get_version(gdr_t g, int *major, int *minor);

/* EINVAL for an unknown attribute. *v is 0 where the call fails. */
int gdr_get_attribute(gdr_t g, gdr_attr_t attr, int *v);
/* A static string; EINVAL for an unknown type. */
int gdr_get_mapping_type_string(gdr_mapping_type_t mapping_type, const char **text);

#ifdef __cplusplus
}
#endif

#endif
