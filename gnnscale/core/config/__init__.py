"""Options: typed configuration, code of the user, and what a found directory may decide."""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names

if TYPE_CHECKING:
    from gnnscale.core.config.compose import config_groups, separate_hydra
    from gnnscale.core.config.imports import refuse_while_importing
    from gnnscale.core.config.option_names import flat_options, option_of_keyword, unknown_option
    from gnnscale.core.config.renamed import current_path, stored_path
    from gnnscale.core.config.repeat import repeat_command, with_absolute_paths
    from gnnscale.core.config.run_directory import *  # noqa: F403
    from gnnscale.core.config.typed import differences
    from gnnscale.core.config.untrusted import format_option_value, names
    from gnnscale.core.config.user_code import *  # noqa: F403
    from gnnscale.core.config.yaml_file import *  # noqa: F403

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.core.config.compose": "config_groups separate_hydra",
        "gnnscale.core.config.imports": "refuse_while_importing",
        "gnnscale.core.config.option_names": "flat_options option_of_keyword unknown_option",
        "gnnscale.core.config.renamed": "current_path stored_path",
        "gnnscale.core.config.repeat": "repeat_command with_absolute_paths",
        "gnnscale.core.config.run_directory": (
            "CONFIG_FILE METRICS_FILE STEPS_FILE SUMMARY_FILE check_unused "
            "create_run_directory locked_run read_run removed_on_error"
        ),
        "gnnscale.core.config.typed": "differences",
        "gnnscale.core.config.untrusted": "format_option_value names",
        "gnnscale.core.config.user_code": (
            "GROUPS allow check_name code_digest is_moved is_name is_of_program load_call "
            "load_named name_of_code pass_code short_name"
        ),
        "gnnscale.core.config.yaml_file": (
            "check_known check_references escaped load_yaml read_regular read_yaml"
        ),
    },
)
