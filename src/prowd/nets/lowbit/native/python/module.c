/* The Python module: the instruction sets of this CPU, how codes lie, and the type Layer. int8.py is the only user. */
#include "object.h"

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
    if (!layer_type || PyModule_AddObjectRef(module, "Layer", (PyObject *)layer_type) < 0 ||
        PyModule_AddIntConstant(module, "OFFSET", OFFSET) < 0)
        Py_CLEAR(module);
    return module;
}
