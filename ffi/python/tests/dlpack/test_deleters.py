"""DLPack's deleters, called by other libraries where these let go of the interpreter."""


def test_a_view_drops_a_tensor_whose_library_lets_go_of_the_interpreter(run_python):
    # As PyTorch and Warp do: ctypes calls the deleter without the interpreter's lock.
    code = """
        import ctypes, vkgdr

        class Tensor:
            def __init__(self, memory):
                self.__cuda_array_interface__ = memory.__cuda_array_interface__
                capsule, self.used = memory.__dlpack__(), b"used_dltensor"
                api = ctypes.pythonapi
                api.PyCapsule_GetPointer.restype = ctypes.c_void_p
                api.PyCapsule_GetPointer.argtypes = ctypes.py_object, ctypes.c_char_p
                api.PyCapsule_SetName.argtypes = ctypes.py_object, ctypes.c_char_p
                self.managed = api.PyCapsule_GetPointer(capsule, b"dltensor")
                api.PyCapsule_SetName(capsule, self.used)
                # DLManagedTensor: 48 bytes of DLTensor, manager_ctx, deleter.
                deleter = ctypes.c_void_p.from_address(self.managed + 56).value
                self.deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)

            def __del__(self):
                self.deleter(self.managed)

        gpu = vkgdr.Vkgdr.open_primary_context(0)
        view = vkgdr.host_view(Tensor(vkgdr.Memory(gpu, 4096)))
        del view
        print(gpu.stats()["live_allocations"])
        kept = vkgdr.host_view(Tensor(vkgdr.Memory(gpu, 4096)))  # until the interpreter's end
    """
    assert run_python(code).stdout == "0\n"


def test_memory_goes_with_the_state_of_a_thread_that_another_library_made(run_python):
    code = """
        import ctypes, threading, vkgdr

        gpu = vkgdr.Vkgdr.open_primary_context(0)
        local, libc, thread = threading.local(), ctypes.CDLL(None), ctypes.c_ulong()

        @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        def body(_):
            local.memory = vkgdr.Memory(gpu, 4096)

        libc.pthread_create.argtypes = [ctypes.c_void_p] * 4
        libc.pthread_join.argtypes = ctypes.c_ulong, ctypes.c_void_p
        for _ in range(3):
            libc.pthread_create(ctypes.addressof(thread), None, ctypes.cast(body, ctypes.c_void_p), None)
            libc.pthread_join(thread, None)
        print(gpu.stats()["live_allocations"])
    """
    assert run_python(code).stdout == "0\n"
