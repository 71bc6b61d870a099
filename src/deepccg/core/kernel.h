// How a kernel is declared, so that Python can call it by the names of its parameters.
//
// A library that is loaded with ctypes has no signatures: swapping two pointers in a call would
// overwrite memory. These macros put the declaration itself into the library, as text
// (deepccg/core/compile.py reads it).

#pragma once

#include <cstdint>

// KERNEL(name, parameters...) { body }
#define KERNEL(name, ...) KERNEL_EXPANDED(name, __VA_ARGS__)  // macros in the parameters first
#define KERNEL_EXPANDED(name, ...)                                   \
  extern "C" const char* name##_signature() { return #__VA_ARGS__; } \
  extern "C" void name(__VA_ARGS__)

// A struct of int64_t with these fields, for parameters of type const Name*.
#define KERNEL_SIZES(Name, ...)                                      \
  extern "C" const char* Name##_fields() { return #__VA_ARGS__; }    \
  struct Name {                                                      \
    int64_t __VA_ARGS__;                                             \
  }
