"""The C++ part of scripts/make-bindings: methods of rondo::comm for every call, and the types of elements."""

ELEMENTS = {"f32": "float", "f64": "double", "ld": "long double", "cf32": "std::complex<float>",
            "cf64": "std::complex<double>", "cld": "std::complex<long double>"}
# Floats that C++17 has no type for: structs of their bits.
BITS = {"f16": ("float16", "std::uint16_t"), "bf16": ("bfloat16", "std::uint16_t"),
        "f8e4m3": ("float8e4m3", "std::uint8_t"), "f8e5m2": ("float8e5m2", "std::uint8_t")}


def parameters(function, form):
    """The parameters of a method: typed (T is deduced), null (of a rank that sends nothing) or untyped."""
    out = ["rondo_dtype type"] if form == "untyped" else []
    for param in function.params:
        if param.name in ("type", "comm"):
            continue
        if param.name == "stream":
            out.append("rondo_stream stream = nullptr")
        elif param.name == "send" and form != "untyped":
            out.append("std::nullptr_t send" if form == "null" else "const T *send")
        elif param.name == "recv" and form != "untyped":
            out.append("same<T> *recv" if "send" in function.names and form == "typed" else "T *recv")
        else:
            out.append(f"{param.type} {param.name}".replace("* ", "*").replace("size_t", "std::size_t"))
    return out


def method(function, form):
    """The method that throws, and the one that returns the status."""
    inside = {"comm": "get()", "type": "type" if form == "untyped" else "dtype<T>"}
    call = f"rondo_{function.name}({', '.join(inside.get(name, name) for name in function.names)})"
    head = "    template <class T>\n" if form in ("typed", "null") else ""
    params = parameters(function, form)
    return [f"{head}    void {function.name}({', '.join(params)})", "    {", f"        check({call}, get());", "    }",
            f"{head}    [[nodiscard]] rondo_status {function.name}(std::nothrow_t, {', '.join(params)}) noexcept",
            "    {", f"        return {call};", "    }"]


def calls(api):
    out = []
    for function in api.calls:
        out += ["    /**"] + [("     * " + line).rstrip() for line in function.doc.split("\n")] + ["     */"]
        if "type" not in function.names:
            out += method(function, "plain")
            continue
        out += method(function, "typed")
        if "recv" in function.names and function.may_be_null("send"):
            out += method(function, "null")
        out += method(function, "untyped")
    return out


def elements(api):
    """Which rondo_dtype a type of C++ has."""
    out = []
    names = {row.name: f"RONDO_{row.NAME}" for row in api.dtypes}
    for name, number in names.items():
        if name in BITS:
            out += [f"struct {BITS[name][0]} {{", f"    {BITS[name][1]} bits;", "};"]
        if name in BITS or name in ELEMENTS:
            kind = BITS[name][0] if name in BITS else ELEMENTS[name]
            out += ["template <>", f"struct dtype_of<{kind}> : dtype_is<{number}> {{", "};"]
    out += ["template <class T>",
            "struct dtype_of<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>>"
            " : dtype_is<integer_dtype(sizeof(T), std::is_signed_v<T>)> {", "};"]
    if "b8" in names:
        out += ["template <>", f"struct dtype_of<bool> : dtype_is<{names['b8']}> {{",
                '    static_assert(sizeof(bool) == 1, "a bool has one byte");', "};"]
    return out


def integers(api):
    """The rondo_dtype of an integer, or of none of that size RONDO_NUM_DTYPES."""
    return [f"    if (bytes == {int(row.name[1:]) // 8} && {'' if row.name[0] == 'i' else '!'}is_signed) return "
            f"RONDO_{row.NAME};" for row in api.dtypes if row.name[0] in "iu" and row.name[1:].isdigit()]


def simple(function):
    params = ", ".join(f"{param.type} {param.name}" for param in function.params)
    return [f"inline {function.result} {function.name}({params}) noexcept", "{",
            f"    return rondo_{function.name}({', '.join(function.names)});", "}"]


def make(api, options, fill, passed_on):
    source = "cxx/rondo.hpp.in"
    fill(source, f"{options.out}/cxx/rondo.hpp", {
        "CALLS": calls(api), "ELEMENTS": elements(api), "INTEGERS": integers(api),
        "FUNCTIONS": [line for function in passed_on(api, source, "C++") for line in simple(function)],
        "OPERATIONS": [f"inline constexpr rondo_op {row.name} = RONDO_{row.NAME};" for row in api.ops]})
