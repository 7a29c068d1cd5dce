"""Plans of cuda devices for which the host stands."""

from devices import plan_of


def cuda(**options: object) -> str:
    """The device with these options."""
    others = "".join(f",{name}:{value}" for name, value in options.items())
    return f"{{kind:cuda,host_driven:true{others}}}"


def cards(*places: str) -> str:
    """A device for each, which own their steps together: they are different cards."""
    each = [cuda(index=index, features=place) for index, place in enumerate(places)]
    return plan_of(*each)


def parts(num_devices: int, options: tuple[str, ...]) -> str:
    size = 50 if "batch_size=50" in options else 64
    return str([size // num_devices + (each < size % num_devices) for each in range(num_devices)])
