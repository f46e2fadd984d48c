#ifndef ONS_JS_SHAPES_H
#define ONS_JS_SHAPES_H
enum { JS_TILE_BYTES = 4096 };
#endif
