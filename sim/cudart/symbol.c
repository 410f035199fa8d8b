// Addresses and copies of the variables that nvcc compiled into a program.
#include "runtime.h"

static int address(void **out, const void *symbol) {
    uint64_t address;
    if (out == NULL) return INVALID_VALUE;
    int code = runtime_variable(&address, NULL, symbol);
    if (code == SUCCESS) *out = POINTER(address);
    return code;
}

static int size_of(size_t *out, const void *symbol) {
    uint64_t address;
    return out == NULL ? INVALID_VALUE : runtime_variable(&address, out, symbol);
}

int runtime_in_symbol(void **out, const void *symbol, size_t size, size_t offset, int kind, int writes) {
    uint64_t address;
    size_t whole;
    if (kind == (writes ? DEVICE_TO_HOST : HOST_TO_DEVICE) || kind == HOST_TO_HOST) return INVALID_DIRECTION;
    int code = runtime_variable(&address, &whole, symbol);
    if (code == SUCCESS && (offset > whole || size > whole - offset)) code = INVALID_VALUE;
    if (code == SUCCESS) *out = POINTER(address + offset);
    return code;
}

static int copy_symbol(const void *symbol, void *to, const void *from, size_t size, size_t offset, int kind, void *stream,
                       int wait) {
    void *inside;
    int writes = to == NULL, code = runtime_in_symbol(&inside, symbol, size, offset, kind, writes);
    if (code != SUCCESS) return code;
    return writes ? runtime_copy(inside, from, size, kind, stream, wait)
                  : runtime_copy(to, inside, size, kind, stream, wait);
}

CALL(cudaGetSymbolAddress, (void **out, const void *symbol), address(out, symbol))
CALL(cudaGetSymbolSize, (size_t * out, const void *symbol), size_of(out, symbol))
ON_DEFAULT(cudaMemcpyToSymbol, (const void *symbol, const void *from, size_t size, size_t offset, int kind),
           copy_symbol(symbol, NULL, from, size, offset, kind, own, 1))
ON_STREAM(cudaMemcpyToSymbolAsync,
          (const void *symbol, const void *from, size_t size, size_t offset, int kind, void *stream),
          copy_symbol(symbol, NULL, from, size, offset, kind, stream, 0))
ON_DEFAULT(cudaMemcpyFromSymbol, (void *to, const void *symbol, size_t size, size_t offset, int kind),
           to == NULL ? INVALID_VALUE : copy_symbol(symbol, to, NULL, size, offset, kind, own, 1))
ON_STREAM(cudaMemcpyFromSymbolAsync, (void *to, const void *symbol, size_t size, size_t offset, int kind, void *stream),
          to == NULL ? INVALID_VALUE : copy_symbol(symbol, to, NULL, size, offset, kind, stream, 0))
