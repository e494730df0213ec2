"""The Fortran part of scripts/make-bindings: constants, C interfaces and a procedure for every function."""

C_TYPES = {"int": "integer(c_int)", "int64_t": "integer(c_int64_t)", "uint32_t": "integer(c_int32_t)",
           "size_t": "integer(c_size_t)", "rondo_dtype": "integer(c_int)", "rondo_op": "integer(c_int)",
           "rondo_status": "integer(c_int)", "const char *": "type(c_ptr)"}
HANDLES = {"rondo_comm *": "rondo_comm", "const rondo_comm *": "rondo_comm", "rondo_local *": "rondo_local",
           "rondo_stream": "rondo_stream"}
MADE = {"rondo_comm **": "rondo_comm", "rondo_local **": "rondo_local", "rondo_stream *": "rondo_stream"}
NUMBERS_OUT = {"int *": "integer(c_int)", "rondo_status *": "integer(c_int)", "rondo_op *": "integer(c_int)"}
BUFFERS = ("send", "recv", "buf", "scalar")
INDENT = "    "


def is_buffer(param):
    return param.type.endswith("void *") and param.name in BUFFERS


def interface(function):
    """The function of C."""
    kind = "function" if function.result != "void" else "subroutine"
    out = [f"    {kind} c_{function.name}({', '.join(function.names)}) &",
           f'        bind(c, name="rondo_{function.name}") result(result_)', "        import",
           f"        {C_TYPES[function.result]} :: result_"]
    for param in function.params:
        if param.type in C_TYPES:
            how = f"{C_TYPES[param.type]}, value"
        elif param.type in NUMBERS_OUT:
            how = f"{NUMBERS_OUT[param.type]}, intent(inout)"
        elif param.type in MADE:
            how = "type(c_ptr), intent(inout), target"
        elif param.type == "void **":
            how = "type(c_ptr), intent(inout)"
        elif param.type in ("const size_t *", "const int *"):
            how = f"{C_TYPES[param.type.split()[1]]}, intent(in)"
            out.append(f"        {how} :: {param.name}(*)")
            continue
        else:
            how = "type(c_ptr), value"
        out.append(f"        {how} :: {param.name}")
    return out + ["    end function"]


def dummy(param, kind, optional):
    """The declaration of a dummy argument."""
    if is_buffer(param):
        return f"RONDO_BUFFER :: {param.name}"
    if param.type == "size_t":
        return f"integer({kind}), intent(in) :: {param.name}"
    if param.type == "const size_t *":
        return f"integer({kind}), intent(in) :: {param.name}(:)"
    if param.type == "const int *":
        return f"integer(c_int), intent(in) :: {param.name}(*)"
    if param.type == "const rondo_config *":
        return f"type(rondo_config), intent(in), optional :: {param.name}"
    if param.type in HANDLES:
        return f"type({HANDLES[param.type]}), intent(in){', optional' if optional else ''} :: {param.name}"
    if param.type in MADE:
        # C may keep the address until the end of a group.
        return f"type({MADE[param.type]}), intent(inout), target :: {param.name}"
    if param.type in NUMBERS_OUT:
        return f"{NUMBERS_OUT[param.type]}, intent(inout) :: {param.name}"
    if param.type == "void **":
        return f"type(c_ptr), intent(inout) :: {param.name}"
    if param.type in C_TYPES:
        return f"{C_TYPES[param.type]}, intent(in) :: {param.name}"
    return f"type(c_ptr), intent(in) :: {param.name}"


def actual(param, optional):
    """What the procedure passes to C."""
    if is_buffer(param):
        return f"RONDO_LOC({param.name})"
    if param.type in ("size_t", "const size_t *"):
        return f"int({param.name}, c_size_t)"
    if param.type == "const rondo_config *":
        return "settings_"
    if param.type == "rondo_stream" and optional:
        return "stream_of(stream)"
    if param.type in HANDLES or param.type in MADE:
        return f"{param.name}%handle"
    return param.name


def is_optional(function, param):
    return param.type == "const rondo_config *" or (function.is_call and param.name == "stream")


def call(function):
    """The call of C, one argument a line."""
    lines = [f"{INDENT * 2}    {actual(param, is_optional(function, param))}" for param in function.params]
    if not lines:
        return [f"{INDENT * 2}c_{function.name}()"]
    return [f"{INDENT * 2}c_{function.name}( &", *[line + ", &" for line in lines[:-1]], lines[-1] + ")"]


def procedure(function, name, kind):
    """A subroutine that ends with an optional ierror; a function of rondo.h that returns a number is a function."""
    optional = [param for param in function.params if is_optional(function, param)]
    params = [param for param in function.params if param not in optional] + optional
    names = [param.name for param in params]
    out = [f"! {line}".rstrip() for line in function.doc.split("\n")] if function.doc else []
    declarations = [INDENT + dummy(param, kind, param in optional) for param in params]
    lines = call(function)
    if function.result != "rondo_status":
        return out + [f"function {name}({', '.join(names)}) result(result_)", *declarations,
                      f"    {C_TYPES[function.result]} :: result_", "    result_ = &", *lines, f"end function {name}"]
    out += [f"subroutine {name}({', '.join(names + ['ierror'])})", *declarations,
            "    integer, intent(out), optional :: ierror", "    integer(c_int) :: status_"]
    if any(param.type == "const rondo_config *" for param in params):
        out += ["    type(rondo_config), target :: copy_", "    type(c_ptr) :: settings_",
                "    call copy_config(config, copy_)", "    settings_ = merge_config(config, copy_)"]
    for param in params:
        if is_buffer(param):
            out += [f"    if (RONDO_SCATTERED({param.name})) then",
                    f'        call refuse("rondo_{function.name}", "{param.name}", ierror)', "        return",
                    "    end if"]
    out += ["    status_ = &", *lines]
    comm = "comm%handle" if "comm" in names and dict(zip(names, params))["comm"].type in HANDLES else "c_null_ptr"
    out += [f'    call finish("rondo_{function.name}", status_, {comm}, ierror)', f"end subroutine {name}"]
    return out


def procedures(function):
    """The generic interface and its procedures: counts may be of 4 and of 8 bytes."""
    name = f"rondo_{function.name}"
    if not any(param.type in ("size_t", "const size_t *") for param in function.params):
        return [f"public :: {name}"], procedure(function, name, "")
    head = [f"public :: {name}", f"interface {name}",
            f"    module procedure {name}_i4, {name}_i8", f"end interface {name}"]
    return head, procedure(function, f"{name}_i4", "int32") + [""] + procedure(function, f"{name}_i8", "int64")


def constants(api):
    rows = [(f"RONDO_{row.NAME}", row.value) for row in api.statuses + api.dtypes + api.ops] + api.macros
    return [f"integer(c_int), parameter, public :: {name} = {value}" for name, value in rows]


def config(api):
    out = []
    for field, value in zip(api.config, api.config_init):
        value = {"NULL": "c_null_ptr", "sizeof(rondo_config)": "0"}.get(value, value)
        kind = C_TYPES[field.type]
        if kind in ("integer(c_size_t)", "integer(c_int64_t)"):
            value = f"int({value}, {kind[8:-1]})"
        out.append(f"    {kind} :: {field.name} = {value}")
    return out


def make(api, options, fill, passed_on):
    source = "fortran/rondo.F90.in"
    made = [function for function in api.functions if function.result != "const char *"]
    by_hand = [function for function in api.functions if function.result == "const char *"]
    for function in passed_on(api, source, "Fortran", by_hand):
        api.unknown.append(f"rondo_{function.name} has no counterpart in Fortran: add it to src/bindings/{source}")
    heads, bodies = [], []
    for function in made:
        head, body = procedures(function)
        heads += head
        bodies += body + [""]
    fill(source, f"{options.out}/fortran/rondo.F90", {
        "CONSTANTS": constants(api), "CONFIG": config(api), "PUBLIC": heads, "PROCEDURES": bodies,
        "INTERFACES": [line for function in api.functions for line in interface(function)]})
    fill("fortran/rondo_tensor.F90", f"{options.out}/fortran/rondo_tensor.F90", {})
