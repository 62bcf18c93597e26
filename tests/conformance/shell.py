"""What a shell makes of an exported file."""

import subprocess


def sourced(text, name, folder):
    """(words of the array, variables) after a bash sources the text."""
    path = folder / "exported.sh"
    path.write_text(text, encoding="utf-8")
    script = f'env -i bash -c \'source "{path}"; printf "%s\\0" "${{{name}[@]}}"; printf "\\1"; env -0\''
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    words, _, variables = told.partition("\1")
    pairs = (line.split("=", 1) for line in variables.split("\0") if "=" in line)
    return words.split("\0")[:-1], dict(pairs)
