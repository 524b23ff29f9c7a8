/* The Python module: the instruction sets of this CPU, and the type Layer. int8.py is the only user. */
#include "layer.h"

static const Kernels *const all_kernels[] = {
    &avx512vnni_kernels,
    &avx2_kernels,
    &portable_kernels,
};
enum { KERNEL_COUNT = sizeof all_kernels / sizeof *all_kernels };

static int supported(const Kernels *kernels) {
    __builtin_cpu_init();
    if (kernels == &avx512vnni_kernels)
        return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl");
    return __builtin_cpu_supports("avx2") != 0; /* of all: the passes are compiled for it */
}

const Kernels *kernels_at(int number) {
    for (int i = 0; i < KERNEL_COUNT; i++)
        if (supported(all_kernels[i]) && number-- == 0) return all_kernels[i];
    return NULL;
}

static PyObject *kernels(PyObject *self, PyObject *args) {
    (void)self, (void)args;
    PyObject *found = PyList_New(0);
    const Kernels *one;
    for (int i = 0; found && (one = kernels_at(i)); i++) {
        PyObject *name = PyUnicode_FromString(one->name);
        if (!name || PyList_Append(found, name) < 0) Py_CLEAR(found);
        Py_XDECREF(name);
    }
    return found;
}

static PyMethodDef functions[] = {
    {"kernels", kernels, METH_NOARGS, "Names of the instruction sets of this CPU, fastest first."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Integer kernels of s-bit training (s up to 8).", -1, functions, NULL, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    layer_type = (PyTypeObject *)PyType_FromSpec(&layer_spec);
    if (!layer_type || PyModule_AddObjectRef(module, "Layer", (PyObject *)layer_type) < 0) Py_CLEAR(module);
    return module;
}
