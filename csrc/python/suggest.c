/* suggest.c - "did you mean": the known name that is nearest to an unknown one. */
#include "arguments.h"

#include <ctype.h>
#include <string.h>

enum { LONGEST = 24, NEAR = 2 };

static int least(int a, int b) { return a < b ? a : b; }

/* Number of letters to change, insert or remove, ignoring case (Levenshtein, 1965). */
static int distance(const char *a, const char *b) {
    const int m = (int)strlen(a), n = (int)strlen(b);
    int row[LONGEST + 1];
    if (m > LONGEST || n > LONGEST) return LONGEST;
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; i <= m; i++) {
        int before = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            const int same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            const int changed = before + !same;
            before = row[j];
            row[j] = least(changed, least(row[j], row[j - 1]) + 1);
        }
    }
    return row[n];
}

const char *ons_nearest(PyObject *given, const char *const *names, int count) {
    const char *text = PyUnicode_Check(given) ? PyUnicode_AsUTF8(given) : NULL, *found = NULL;
    if (!text) {
        PyErr_Clear();
        return NULL;
    }
    int nearest = NEAR + 1;
    for (int i = 0; i < count; i++) {
        const int apart = names[i] ? distance(text, names[i]) : LONGEST;
        if (apart < nearest && apart < (int)strlen(text)) {
            nearest = apart;
            found = names[i];
        }
    }
    return found;
}

/* Other libraries' names for a parameter, and what to write here if the function has it. */
static const struct {
    const char *name;
    int needs; /* the keyword that is needed, or its complement: it must be missing */
    const char *hint;
} hints[] = {
    {"dim", AXIS, "did you mean axis?"},
    {"dims", AXIS, "did you mean axis?"},
    {"axes", AXIS, "did you mean axis?"},
    {"temperature", SCALE, "did you mean scale=1 / temperature?"},
    {"mask", WHERE, "did you mean where? It is True where elements count"},
    {"keepdim", KEEPDIMS, "did you mean keepdims?"},
    {"keepdim", ~KEEPDIMS, "the result has all dimensions of the array"},
    {"keepdims", ~KEEPDIMS, "the result has all dimensions of the array"},
    {"out", ~OUT, "the result is always a new array"},
    {"dtype", ~DTYPE, "convert the array first"},
};

const char *ons_keyword_hint(PyObject *name, int keywords) {
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        const int needs = hints[i].needs;
        const bool fits = needs < 0 ? !(keywords >> ~needs & 1) : keywords >> needs & 1;
        if (fits && PyUnicode_CompareWithASCIIString(name, hints[i].name) == 0)
            return hints[i].hint;
    }
    return NULL;
}
