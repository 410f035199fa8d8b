// Graphs. Their handles are the driver's, as are the parameters of fills, host functions and events. More about nodes is in
// node.c.
#include "runtime.h"

int runtime_kernel_node(KernelNode *own, const KernelNode *node) {
    void *kernel = NULL;
    const char *name;
    if (node == NULL) return INVALID_VALUE;
    *own = *node;
    int code = runtime_kernel(&kernel, node->function);
    // What cudaGraphKernelNodeGetParams said of a kernel that the program has no function for.
    if (code == INVALID_FUNCTION && driver.cuFuncGetName(&name, (void *)node->function) == SUCCESS) return SUCCESS;
    own->function = kernel;
    return code;
}

static int add_kernel(void **out, void *graph, void *const *after, size_t count, const KernelNode *node) {
    KernelNode own;
    int code = runtime_kernel_node(&own, node);
    return code == SUCCESS ? driver.cuGraphAddKernelNode(out, graph, after, count, &own) : code;
}

static int set_kernel(void *node, const KernelNode *parameters) {
    KernelNode own;
    int code = runtime_kernel_node(&own, parameters);
    return code == SUCCESS ? driver.cuGraphKernelNodeSetParams(node, &own) : code;
}

static int set_kernel_in(void *executable, void *node, const KernelNode *parameters) {
    KernelNode own;
    int code = runtime_kernel_node(&own, parameters);
    return code == SUCCESS ? driver.cuGraphExecKernelNodeSetParams(executable, node, &own) : code;
}

CALL(cudaGraphCreate, (void **out, unsigned flags), driver.cuGraphCreate(out, flags))
CALL(cudaGraphDestroy, (void *graph), driver.cuGraphDestroy(graph))
CALL(cudaGraphClone, (void **out, void *graph), driver.cuGraphClone(out, graph))
CALL(cudaGraphNodeFindInClone, (void **out, void *node, void *clone), driver.cuGraphNodeFindInClone(out, node, clone))
CALL(cudaGraphGetNodes, (void *graph, void **out, size_t *count), driver.cuGraphGetNodes(graph, out, count))
CALL(cudaGraphGetRootNodes, (void *graph, void **out, size_t *count), driver.cuGraphGetRootNodes(graph, out, count))
CALL(cudaGraphNodeGetType, (void *node, int *out), driver.cuGraphNodeGetType(node, out))
CALL(cudaGraphDestroyNode, (void *node), driver.cuGraphDestroyNode(node))

CALL(cudaGraphAddKernelNode, (void **out, void *graph, void *const *after, size_t count, const KernelNode *node),
     add_kernel(out, graph, after, count, node))
CALL(cudaGraphAddMemsetNode, (void **out, void *graph, void *const *after, size_t count, const void *node),
     driver.cuGraphAddMemsetNode(out, graph, after, count, node, NULL))
CALL(cudaGraphAddHostNode, (void **out, void *graph, void *const *after, size_t count, const void *node),
     driver.cuGraphAddHostNode(out, graph, after, count, node))
CALL(cudaGraphAddChildGraphNode, (void **out, void *graph, void *const *after, size_t count, void *child),
     driver.cuGraphAddChildGraphNode(out, graph, after, count, child))
CALL(cudaGraphAddEmptyNode, (void **out, void *graph, void *const *after, size_t count),
     driver.cuGraphAddEmptyNode(out, graph, after, count))
CALL(cudaGraphAddEventRecordNode, (void **out, void *graph, void *const *after, size_t count, void *event),
     driver.cuGraphAddEventRecordNode(out, graph, after, count, event))
CALL(cudaGraphAddEventWaitNode, (void **out, void *graph, void *const *after, size_t count, void *event),
     driver.cuGraphAddEventWaitNode(out, graph, after, count, event))
CALL(cudaGraphKernelNodeSetParams, (void *node, const KernelNode *parameters), set_kernel(node, parameters))
CALL(cudaGraphMemsetNodeSetParams, (void *node, const void *parameters),
     driver.cuGraphMemsetNodeSetParams(node, parameters))
CALL(cudaGraphExecKernelNodeSetParams, (void *executable, void *node, const KernelNode *parameters),
     set_kernel_in(executable, node, parameters))
CALL(cudaGraphExecMemsetNodeSetParams, (void *executable, void *node, const void *parameters),
     driver.cuGraphExecMemsetNodeSetParams(executable, node, parameters, NULL))

// The forms with the data of edges are those of CUDA 13, and have a suffix in CUDA 12.
#if MAJOR == 12
#define WITH_DATA(name) name##_v2
CALL(cudaGraphAddDependencies, (void *graph, void *const *from, void *const *to, size_t count),
     driver.cuGraphAddDependencies_v2(graph, from, to, NULL, count))
CALL(cudaGraphRemoveDependencies, (void *graph, void *const *from, void *const *to, size_t count),
     driver.cuGraphRemoveDependencies_v2(graph, from, to, NULL, count))
CALL(cudaGraphGetEdges, (void *graph, void **from, void **to, size_t *count),
     driver.cuGraphGetEdges_v2(graph, from, to, NULL, count))
CALL(cudaGraphNodeGetDependencies, (void *node, void **out, size_t *count),
     driver.cuGraphNodeGetDependencies_v2(node, out, NULL, count))
CALL(cudaGraphNodeGetDependentNodes, (void *node, void **out, size_t *count),
     driver.cuGraphNodeGetDependentNodes_v2(node, out, NULL, count))
ON_STREAM(cudaStreamUpdateCaptureDependencies, (void *stream, void **nodes, size_t count, unsigned flags),
          driver.cuStreamUpdateCaptureDependencies_v2(stream, nodes, NULL, count, flags))
#else
#define WITH_DATA(name) name
#endif
CALL(WITH_DATA(cudaGraphAddDependencies),
     (void *graph, void *const *from, void *const *to, const void *data, size_t count),
     driver.cuGraphAddDependencies_v2(graph, from, to, data, count))
CALL(WITH_DATA(cudaGraphRemoveDependencies),
     (void *graph, void *const *from, void *const *to, const void *data, size_t count),
     driver.cuGraphRemoveDependencies_v2(graph, from, to, data, count))
CALL(WITH_DATA(cudaGraphGetEdges), (void *graph, void **from, void **to, void *data, size_t *count),
     driver.cuGraphGetEdges_v2(graph, from, to, data, count))
CALL(WITH_DATA(cudaGraphNodeGetDependencies), (void *node, void **out, void *data, size_t *count),
     driver.cuGraphNodeGetDependencies_v2(node, out, data, count))
CALL(WITH_DATA(cudaGraphNodeGetDependentNodes), (void *node, void **out, void *data, size_t *count),
     driver.cuGraphNodeGetDependentNodes_v2(node, out, data, count))
#if MAJOR == 12
ON_STREAM(cudaStreamUpdateCaptureDependencies_v2,
          (void *stream, void **nodes, const void *data, size_t count, unsigned flags),
          driver.cuStreamUpdateCaptureDependencies_v2(stream, nodes, data, count, flags))
#else
ON_STREAM(cudaStreamUpdateCaptureDependencies,
          (void *stream, void **nodes, const void *data, size_t count, unsigned flags),
          driver.cuStreamUpdateCaptureDependencies_v2(stream, nodes, data, count, flags))
#endif
ON_STREAM(cudaStreamBeginCaptureToGraph,
          (void *stream, void *graph, void *const *after, const void *data, size_t count, int mode),
          driver.cuStreamBeginCaptureToGraph(stream, graph, after, data, count, mode))

CALL(cudaGraphInstantiate, (void **out, void *graph, unsigned long long flags),
     driver.cuGraphInstantiateWithFlags(out, graph, flags))
CALL(cudaGraphInstantiateWithFlags, (void **out, void *graph, unsigned long long flags),
     driver.cuGraphInstantiateWithFlags(out, graph, flags))
CALL(cudaGraphInstantiateWithParams, (void **out, void *graph, void *parameters),
     driver.cuGraphInstantiateWithParams(out, graph, parameters))
CALL(cudaGraphInstantiateWithParams_ptsz, (void **out, void *graph, void *parameters),
     driver.cuGraphInstantiateWithParams_ptsz(out, graph, parameters))
CALL(cudaGraphExecDestroy, (void *executable), driver.cuGraphExecDestroy(executable))
CALL(cudaGraphExecGetFlags, (void *executable, unsigned long long *out), driver.cuGraphExecGetFlags(executable, out))
CALL(cudaGraphExecUpdate, (void *executable, void *graph, void *result),
     driver.cuGraphExecUpdate_v2(executable, graph, result))
CALL(cudaGraphNodeGetEnabled, (void *executable, void *node, unsigned *out),
     driver.cuGraphNodeGetEnabled(executable, node, out))
CALL(cudaGraphNodeSetEnabled, (void *executable, void *node, unsigned enabled),
     driver.cuGraphNodeSetEnabled(executable, node, enabled))
ON_STREAM(cudaGraphLaunch, (void *executable, void *stream), driver.cuGraphLaunch(executable, stream))
ON_STREAM(cudaGraphUpload, (void *executable, void *stream), driver.cuGraphUpload(executable, stream))
