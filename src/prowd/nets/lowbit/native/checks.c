/* What is refused, and why. */
#include "layer.h"

#include <stdio.h>

int within(Layer *layer, const char *name, Size value, Size least, Size most) {
    if (value >= least && value <= most) return 1;
    snprintf(layer->fault, FAULT, "%s is %td; accepted: %td to %td", name, value, least, most);
    return 0;
}

int refuse(Layer *layer, const char *what) {
    snprintf(layer->fault, FAULT, "%s", what);
    return 0;
}

int untrained(Layer *layer) { return refuse(layer, "the layer was built without training"); }
