/* The Python type of a layer: its memory is bytearrays, which views of it keep alive.

   While the interpreter is let go, a layer and the neighbour it writes to are marked as busy: a second thread is
   refused. */
#ifndef PROWD_OBJECT_H
#define PROWD_OBJECT_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "../layer.h"

typedef struct Object {
    PyObject_HEAD
    Layer layer;
    struct Object *following; /* NULL for the last */
    Py_buffer codes, memory[PURPOSES];
    int busy; /* whether a thread computes in its memory */
} Object;

static inline Object *object_of(PyObject *self) { return (Object *)self; }

/* A layer's fault as a ValueError. */
PyObject *fault_of(const Layer *layer);
/* ValueError where a buffer does not hold so many numbers of so many bytes, at a place for them. */
int check_numbers(const char *name, const Py_buffer *buffer, Size count, size_t bytes);
/* Take a layer, and a neighbour where there is one, for this thread alone; done() gives them back. Both are called
   with the interpreter held, which makes them safe. */
int begin(Object *object, Object *neighbour);
void done(Object *object, Object *neighbour);

PyObject *show_memory(const Object *object, const char *name);

extern PyType_Spec layer_spec;
extern PyTypeObject *layer_type;
extern PyMethodDef layer_methods[];

#endif
