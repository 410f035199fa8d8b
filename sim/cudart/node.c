// Nodes of graphs: copies, nodes of any kind, and parameters that are read or changed. Nodes of kernels, fills, host functions
// and events are added in graph.c.
#include "runtime.h"

#include <string.h>

typedef int (*SetCopy)(void *executable, void *node, const Copy3D *copy);

static int set_copy(void *executable, void *node, const Copy3D *copy) {
    (void)executable;
    return driver.cuGraphMemcpyNodeSetParams(node, copy);
}

static int set_copy_in(void *executable, void *node, const Copy3D *copy) {
    return driver.cuGraphExecMemcpyNodeSetParams(executable, node, copy, NULL);
}

static int add_box(void **out, void *graph, void *const *after, size_t count, const Box *box) {
    Copy3D copy;
    int code = runtime_box(&copy, box);
    return code == SUCCESS ? driver.cuGraphAddMemcpyNode(out, graph, after, count, &copy, NULL) : code;
}

static int set_box(SetCopy set, void *executable, void *node, const Box *box) {
    Copy3D copy;
    int code = runtime_box(&copy, box);
    return code == SUCCESS ? set(executable, node, &copy) : code;
}

// A copy of bytes, as a box of one row.
static Box row(void *to, const void *from, size_t size, int kind) {
    return (Box){.source = {(void *)from, size, size, 1}, .target = {to, size, size, 1}, .extent = {size, 1, 1}, .kind = kind};
}

// A copy from a variable to `to`, or to it from `from` if `to` is null.
static int symbol_row(Box *out, const void *symbol, void *to, const void *from, size_t size, size_t offset, int kind) {
    void *inside;
    int writes = to == NULL, code = runtime_in_symbol(&inside, symbol, size, offset, kind, writes);
    if (code == SUCCESS) *out = writes ? row(inside, from, size, kind) : row(to, inside, size, kind);
    return code;
}

static int add_row(void **out, void *graph, void *const *after, size_t count, Box box) {
    return add_box(out, graph, after, count, &box);
}

static int set_row(SetCopy set, void *executable, void *node, Box box) {
    return set_box(set, executable, node, &box);
}

static int add_symbol(void **out, void *graph, void *const *after, size_t count, const void *symbol, void *to,
                      const void *from, size_t size, size_t offset, int kind) {
    Box box;
    int code = symbol_row(&box, symbol, to, from, size, offset, kind);
    return code == SUCCESS ? add_box(out, graph, after, count, &box) : code;
}

static int set_symbol(SetCopy set, void *executable, void *node, const void *symbol, void *to, const void *from, size_t size,
                      size_t offset, int kind) {
    Box box;
    int code = symbol_row(&box, symbol, to, from, size, offset, kind);
    return code == SUCCESS ? set_box(set, executable, node, &box) : code;
}

CALL(cudaGraphAddMemcpyNode, (void **out, void *graph, void *const *after, size_t count, const Box *box),
     add_box(out, graph, after, count, box))
CALL(cudaGraphAddMemcpyNode1D,
     (void **out, void *graph, void *const *after, size_t count, void *to, const void *from, size_t size, int kind),
     add_row(out, graph, after, count, row(to, from, size, kind)))
CALL(cudaGraphAddMemcpyNodeToSymbol,
     (void **out, void *graph, void *const *after, size_t count, const void *symbol, const void *from, size_t size,
      size_t offset, int kind),
     add_symbol(out, graph, after, count, symbol, NULL, from, size, offset, kind))
CALL(cudaGraphAddMemcpyNodeFromSymbol,
     (void **out, void *graph, void *const *after, size_t count, void *to, const void *symbol, size_t size, size_t offset,
      int kind),
     to == NULL ? INVALID_VALUE : add_symbol(out, graph, after, count, symbol, to, NULL, size, offset, kind))

CALL(cudaGraphMemcpyNodeSetParams, (void *node, const Box *box), set_box(set_copy, NULL, node, box))
CALL(cudaGraphMemcpyNodeSetParams1D, (void *node, void *to, const void *from, size_t size, int kind),
     set_row(set_copy, NULL, node, row(to, from, size, kind)))
CALL(cudaGraphMemcpyNodeSetParamsToSymbol,
     (void *node, const void *symbol, const void *from, size_t size, size_t offset, int kind),
     set_symbol(set_copy, NULL, node, symbol, NULL, from, size, offset, kind))
CALL(cudaGraphMemcpyNodeSetParamsFromSymbol,
     (void *node, void *to, const void *symbol, size_t size, size_t offset, int kind),
     to == NULL ? INVALID_VALUE : set_symbol(set_copy, NULL, node, symbol, to, NULL, size, offset, kind))
CALL(cudaGraphExecMemcpyNodeSetParams, (void *executable, void *node, const Box *box),
     set_box(set_copy_in, executable, node, box))
CALL(cudaGraphExecMemcpyNodeSetParams1D,
     (void *executable, void *node, void *to, const void *from, size_t size, int kind),
     set_row(set_copy_in, executable, node, row(to, from, size, kind)))
CALL(cudaGraphExecMemcpyNodeSetParamsToSymbol,
     (void *executable, void *node, const void *symbol, const void *from, size_t size, size_t offset, int kind),
     set_symbol(set_copy_in, executable, node, symbol, NULL, from, size, offset, kind))
CALL(cudaGraphExecMemcpyNodeSetParamsFromSymbol,
     (void *executable, void *node, void *to, const void *symbol, size_t size, size_t offset, int kind),
     to == NULL ? INVALID_VALUE : set_symbol(set_copy_in, executable, node, symbol, to, NULL, size, offset, kind))

static int get_kernel(void *node, KernelNode *out) {
    int code = driver.cuGraphKernelNodeGetParams(node, out);
    if (code == SUCCESS) out->function = runtime_function((void *)out->function);
    return code;
}

CALL(cudaGraphKernelNodeGetParams, (void *node, KernelNode *out), get_kernel(node, out))
CALL(cudaGraphMemsetNodeGetParams, (void *node, void *out), driver.cuGraphMemsetNodeGetParams(node, out))
CALL(cudaGraphHostNodeGetParams, (void *node, void *out), driver.cuGraphHostNodeGetParams(node, out))
CALL(cudaGraphHostNodeSetParams, (void *node, const void *parameters), driver.cuGraphHostNodeSetParams(node, parameters))
CALL(cudaGraphExecHostNodeSetParams, (void *executable, void *node, const void *parameters),
     driver.cuGraphExecHostNodeSetParams(executable, node, parameters))
CALL(cudaGraphChildGraphNodeGetGraph, (void *node, void **out), driver.cuGraphChildGraphNodeGetGraph(node, out))
CALL(cudaGraphExecChildGraphNodeSetParams, (void *executable, void *node, void *graph),
     driver.cuGraphExecChildGraphNodeSetParams(executable, node, graph))
CALL(cudaGraphEventRecordNodeGetEvent, (void *node, void **out), driver.cuGraphEventRecordNodeGetEvent(node, out))
CALL(cudaGraphEventRecordNodeSetEvent, (void *node, void *event), driver.cuGraphEventRecordNodeSetEvent(node, event))
CALL(cudaGraphEventWaitNodeGetEvent, (void *node, void **out), driver.cuGraphEventWaitNodeGetEvent(node, out))
CALL(cudaGraphEventWaitNodeSetEvent, (void *node, void *event), driver.cuGraphEventWaitNodeSetEvent(node, event))
CALL(cudaGraphExecEventRecordNodeSetEvent, (void *executable, void *node, void *event),
     driver.cuGraphExecEventRecordNodeSetEvent(executable, node, event))
CALL(cudaGraphExecEventWaitNodeSetEvent, (void *executable, void *node, void *event),
     driver.cuGraphExecEventWaitNodeSetEvent(executable, node, event))

// cudaGraphNodeParams and CUgraphNodeParams: the kind, then what depends on it.
typedef struct {
    int kind, reserved[3];
    char rest[232];
    long long reserved_too;
} AnyNode;

// cudaGraphNodeType.
enum { KERNEL_NODE = 0, COPY_NODE = 1, FILL_NODE = 2 };

// In the parameters of a copy, its structure follows 16 bytes of flags and a context. Behind those of a kernel and of a fill
// the driver has a kernel and a context, which the runtime's structures lack.
static int any(AnyNode *out, const AnyNode *given) {
    enum { COPY = 16, FILL = 40 };
    int code = SUCCESS;
    if (given == NULL) return INVALID_VALUE;
    *out = *given;
    if (given->kind == KERNEL_NODE) {
        KernelNode node, own;
        memcpy(&node, given->rest, sizeof node);
        code = runtime_kernel_node(&own, &node);
        memset(out->rest, 0, sizeof out->rest);
        memcpy(out->rest, &own, sizeof own);
    }
    if (given->kind == COPY_NODE) {
        Box box;
        Copy3D copy;
        memcpy(&box, given->rest + COPY, sizeof box);
        code = runtime_box(&copy, &box);
        if (code == SUCCESS) memcpy(out->rest + COPY, &copy, sizeof copy);
    }
    if (given->kind == FILL_NODE) memset(out->rest + FILL, 0, sizeof out->rest - FILL);
    return code;
}

static int add_any(void **out, void *graph, void *const *after, const void *data, size_t count, const AnyNode *node) {
    AnyNode own;
    int code = any(&own, node);
    return code == SUCCESS ? driver.cuGraphAddNode_v2(out, graph, after, data, count, &own) : code;
}

static int set_any(void *node, const AnyNode *parameters) {
    AnyNode own;
    int code = any(&own, parameters);
    return code == SUCCESS ? driver.cuGraphNodeSetParams(node, &own) : code;
}

static int set_any_in(void *executable, void *node, const AnyNode *parameters) {
    AnyNode own;
    int code = any(&own, parameters);
    return code == SUCCESS ? driver.cuGraphExecNodeSetParams(executable, node, &own) : code;
}

#if MAJOR == 12
CALL(cudaGraphAddNode, (void **out, void *graph, void *const *after, size_t count, const AnyNode *node),
     add_any(out, graph, after, NULL, count, node))
CALL(cudaGraphAddNode_v2,
     (void **out, void *graph, void *const *after, const void *data, size_t count, const AnyNode *node),
     add_any(out, graph, after, data, count, node))
#else
CALL(cudaGraphAddNode, (void **out, void *graph, void *const *after, const void *data, size_t count, const AnyNode *node),
     add_any(out, graph, after, data, count, node))
#endif
CALL(cudaGraphNodeSetParams, (void *node, const AnyNode *parameters), set_any(node, parameters))
CALL(cudaGraphExecNodeSetParams, (void *executable, void *node, const AnyNode *parameters),
     set_any_in(executable, node, parameters))

// Objects of the program that graphs keep alive.
CALL(cudaUserObjectCreate, (void **out, void *argument, HostFunction destroy, unsigned count, unsigned flags),
     driver.cuUserObjectCreate(out, argument, destroy, count, flags))
CALL(cudaUserObjectRetain, (void *object, unsigned count), driver.cuUserObjectRetain(object, count))
CALL(cudaUserObjectRelease, (void *object, unsigned count), driver.cuUserObjectRelease(object, count))
CALL(cudaGraphRetainUserObject, (void *graph, void *object, unsigned count, unsigned flags),
     driver.cuGraphRetainUserObject(graph, object, count, flags))
CALL(cudaGraphReleaseUserObject, (void *graph, void *object, unsigned count),
     driver.cuGraphReleaseUserObject(graph, object, count))
