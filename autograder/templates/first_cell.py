# Run this cell first. It says what is here and finds or fetches what is missing; there is nothing to change in it.
def set_up():
    import platform

    try:
        import torch
    except ModuleNotFoundError as error:
        print(f"PyTorch cannot be imported ({error}): install it as https://pytorch.org says, then restart the kernel.")
    else:
        print(f"Python {platform.python_version()} and PyTorch {torch.__version__} are here.")
    # %% torch
    print("This notebook needs nothing else.")
    # %% repository
    import subprocess

    # %% transformer_lab
    import sys
    from importlib import machinery, util
    from pathlib import Path

    # The course's package may lie in this folder or one around it: in a clone, the course's bundle, its zip or a wheel.
    folders = [Path.cwd(), *Path.cwd().parents]
    places = [str(path) for folder in folders for path in (folder, *folder.glob("transformer?piece?by?piece*"))]
    lab = machinery.PathFinder.find_spec("transformer_lab", sys.path + places) or util.find_spec("transformer_lab")
    # %% repository
    if not (lab and lab.origin):  # then fetch it, but never PyTorch
        light = [name for name in ("nbformat", "matplotlib", "safetensors", "tqdm") if not util.find_spec(name)]
        for packages in filter(None, [["--no-deps", "git+REPOSITORY"], light]):
            print("pip install", *packages)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", *packages]
            print(subprocess.run(pip, capture_output=True, text=True).stderr, end="")
        machinery.PathFinder.invalidate_caches()
        lab = util.find_spec("transformer_lab")
    # %% transformer_lab
    if lab and lab.origin:
        sys.path.append(str(Path(lab.origin).parents[1]))
        print(f"The course's package transformer_lab is here: {Path(lab.origin).parent}.")
    else:
        print(f"transformer_lab is missing: put transformer-piece-by-piece.zip into {Path.cwd()} and run this again.")
    # %% always


set_up()
