"""The Python part of scripts/make-bindings: tables, prototypes and a method for every call."""
import os
import re

C_TYPES = {"int": "c_int", "int64_t": "c_int64", "uint32_t": "c_uint32", "size_t": "c_size_t", "rondo_dtype": "c_int",
           "rondo_op": "c_int", "rondo_status": "c_int", "const char *": "c_char_p"}
# numpy's kind and size, and its or ml_dtypes' name, of the names in RONDO_DTYPE_TABLE.
KINDS = {"ld": "f16", "cf32": "c8", "cf64": "c16", "cld": "c32", "b8": "b1"}
NAMES = {"f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "ld": "longdouble", "cf32": "complex64",
         "cf64": "complex128", "cld": "clongdouble", "b8": "bool"}
DEFAULTS = {"op": "op=SUM", "root": "root=0", "displs": "displs=None"}


def kind(name):
    if name in KINDS:
        return KINDS[name]
    match = re.fullmatch(r"([iu])(8|16|32|64)|(f)(16|32|64)", name)
    return (match[1] or match[3]) + str(int(match[2] or match[4]) // 8) if match else None


def ctype(name):
    return C_TYPES.get(name, "c_void_p")


def method(function):
    names = [name for name in function.names if name not in ("type", "comm", "count", "stream")]
    # A parameter without a default may not follow one that has one.
    needed = max((i for i, name in enumerate(names) if name not in DEFAULTS), default=-1)
    params = ["self"] + [DEFAULTS[name] if i > needed else name for i, name in enumerate(names)]
    extra = [name for name in ("count",) if name in function.names] + (["type"] if "type" in function.names else [])
    params += ["stream=None"] + [f"{'dtype' if name == 'type' else name}=None" for name in extra]
    passed = [f"{name}={name}" for name in names + ["stream"] + ["dtype" if n == "type" else n for n in extra]]
    return [f"    def {function.name}({', '.join(params)}):",
            *('        """' + "\n        ".join(function.doc.split("\n")) + '"""').replace("        \n", "\n").split("\n"),
            f'        self._call("{function.name}", {", ".join(passed)})', ""]


def call_row(function):
    blocks = [name for name in ("send", "recv") if function.has_blocks(name)]
    root_only = [name for name in ("send", "recv") if "root" in function.names and function.may_be_null(name)]
    return f'    "{function.name}": {{"names": {function.names}, "blocks": {blocks}, "root_only": {root_only}}},'


def simple(function):
    return [f"def {function.name}({', '.join(function.names)}):", f'    """{function.doc}"""',
            "    from ._library import engine", "", f"    return engine().rondo_{function.name}"
            f"({', '.join(function.names)})", "", "", f'__all__.append("{function.name}")', ""]


def config(api):
    """The fields of rondo_config with the numbers that RONDO_CONFIG_INIT gives them."""
    numbers = {**dict(api.macros), "NULL": None, "sizeof(rondo_config)": 0}
    for field, value in zip(api.config, api.config_init):
        number = numbers[value] if value in numbers else int(value)
        yield f'    ("{field.name}", "{ctype(field.type)}", {number!r}),'


def make(api, options, fill, passed_on):
    out, folder = f"{options.out}/python/rondo", "python/rondo"
    current, _, age = (int(part) for part in options.lt_version.split(":"))
    texts = {row.value: row.name.replace("_", " ") for row in api.statuses}
    names = {row.NAME.lower(): row.NAME for row in api.dtypes}
    names.update({NAMES[row.name]: row.NAME for row in api.dtypes if row.name in NAMES})
    numbers = {row.NAME: row.value for row in api.dtypes}
    rows = [(row.NAME, row.value) for row in api.statuses + api.dtypes + api.ops]
    rows += [(name[len("RONDO_"):], value) for name, value in api.macros]
    functions = passed_on(api, f"{folder}/_core.py", "Python", [
        function for function in api.functions if not uses(f"{folder}/_buffers.py", function)])
    fill(f"{folder}/_api.py.in", f"{out}/_api.py", {
        "LIBDIR": options.libdir, "INCLUDEDIR": options.include_dir, "PYTHON_DIR": options.python_dir,
        "SOVERSION": str(current - age),
        "MPIS": [f'    "{name}": {files},' for name, files in api.mpis],
        "STATUSES": [f'    ("{row.name}", {row.value}, "{texts[row.value]}"),' for row in api.statuses],
        "DTYPES": [f'    {row.value}: "{row.NAME.lower()}",' for row in api.dtypes],
        "KINDS": [f'    "{kind(row.name)}": {row.value},' for row in api.dtypes if kind(row.name)],
        "NAMES": [f'    "{name}": {numbers[NAME]},' for name, NAME in names.items()],
        "CONFIG": config(api),
        "PROTOTYPES": [f'    "rondo_{function.name}": ("{ctype(function.result)}", '
                       f"{[ctype(param.type) for param in function.params]})," for function in api.functions],
        "CALLS": [call_row(function) for function in api.calls],
        "CONSTANTS": [f"{name} = {value}" for name, value in rows],
        "FUNCTIONS": [line for function in functions for line in simple(function)],
        "METHODS": [line for function in api.calls for line in method(function)]})
    source = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src/bindings", folder)
    for name in sorted(os.listdir(source)):
        if name.endswith((".py", ".cpp", ".hpp")):
            fill(f"{folder}/{name}", f"{out}/{name}", {})


def uses(source, function):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open(f"{root}/src/bindings/{source}", encoding="utf-8") as file:
        return re.search(rf"\brondo_{function.name}\b", file.read()) is not None
