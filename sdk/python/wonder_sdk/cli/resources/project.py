"""``wonder project``: create, list, show and delete projects, and set their network access."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from wonder_sdk.cli.access import members
from wonder_sdk.cli.shared import connection, deletion, listing
from wonder_sdk.cli.shared.parser import add_examples
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder project list
      List the projects of the server.
  wonder project create shop --description "The shop's work."
      Create a project. Use it: wonder run ... --project shop
  wonder project show default
      Show a project with its network access and its repositories.
  wonder project delete shop
      Delete a project and its artifacts; --yes skips the confirmation.
  wonder project allow default 127.0.0.1:8099
      Allow `http` and `mcp` to reach a host, an address or a range that is not public
      (ci.internal:8080, 10.0.0.0/8); without a port, all its ports.
  wonder project disallow default 127.0.0.1:8099
      Withdraw an allowed entry.
  wonder project allow default --only
      Restrict the project to the allowed entries; `disallow --only` allows public addresses again.
  wonder project repository shop code https://example.com/shop.git --branch main
      Add a code repository: a URL, or a folder on the server's machine below its repository_roots. Without a
      URL the repository is removed.
  wonder project shell default on
      Give commands of `shell` the network access of `http` and `mcp`, over HTTP and CONNECT through the
      server's egress proxy; `off`, the default, gives none.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "project",
        help="Create, list, show and delete projects, and set their network access.",
        description="Manage projects, their network access and their repositories.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    connection.add_verb(verbs, "list", "List the projects.", run_list)
    create = connection.add_verb(verbs, "create", "Create a project.", run_create)
    create.add_argument("name", help="Name of the new project, unique on the server.")
    create.add_argument(
        "--description", default="", metavar="TEXT", help="Store this description of the project."
    )
    _verb(verbs, "show", "Show a project and its network access.", run_show)
    delete = _verb(verbs, "delete", "Delete a project and its artifacts.", run_delete)
    deletion.add_yes(delete)
    allow = _verb(verbs, "allow", "Allow a project to reach more hosts.", run_allow)
    allow.add_argument("entries", nargs="*", metavar="HOST[:PORT]", help="Host, address or range to allow.")
    allow.add_argument("--only", action="store_true", help="Block public addresses that are not allowed.")
    disallow = _verb(verbs, "disallow", "Withdraw allowed hosts.", run_disallow)
    disallow.add_argument("entries", nargs="*", metavar="HOST[:PORT]", help="Allowed entry to withdraw.")
    disallow.add_argument("--only", action="store_true", help="Allow all public addresses again.")
    repository = _verb(verbs, "repository", "Add or remove a code repository.", run_repository)
    repository.add_argument("name", metavar="NAME", help="Name of the repository in the project.")
    repository.add_argument(
        "url", nargs="?", default="", metavar="URL", help="Address of the repository; without one, remove it."
    )
    repository.add_argument(
        "--branch",
        default="",
        metavar="NAME",
        help="Start work at this branch of the repository (default: HEAD).",
    )
    shell = _verb(verbs, "shell", "Set the network access of shell commands.", run_shell)
    shell.add_argument("switch", choices=("on", "off"), help="Turn the access on or off.")
    members.register(verbs)
    add_examples(verbs, _EXAMPLES)


def run_repository(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Add or remove a repository. Exit code 1 if the one to remove does not exist."""
    from wonder_sdk import v1

    project = _get(client, arguments.project)
    kept = [each for each in project.repositories if each.name != arguments.name]
    if arguments.url:
        kept.append(v1.Repository(name=arguments.name, url=arguments.url, default_branch=arguments.branch))
    elif len(kept) == len(project.repositories):
        print(f"wonder: {project.name} has no repository {arguments.name}", file=sys.stderr)
        return 1
    return _save(client, project, v1.Project(repositories=kept), "repositories")


def run_list(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Print one line for each project: name, id, description."""
    from wonder_sdk import v1

    pages = listing.pages(client.library.list_projects, v1.ListProjectsRequest(page_size=500))
    rows = ((each.name, each.id, each.description) for page in pages for each in page.projects)
    listing.show(Terminal(), rows, nothing="the server has no projects")
    return 0


def run_create(arguments: argparse.Namespace, client: sync.Client) -> int:
    from wonder_sdk import v1

    project = v1.Project(name=arguments.name, description=arguments.description)
    made = client.library.create_project(v1.CreateProjectRequest(project=project)).project
    Terminal().line(f"project {made.name} created ({made.id})")
    return 0


def run_delete(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Delete the project after confirmation; see `deletion.refusal`."""
    from wonder_sdk import v1

    project = _get(client, arguments.project)
    if code := deletion.refusal(arguments, f"{project.name} and its artifacts"):
        return code
    client.library.delete_project(v1.DeleteProjectRequest(project_id=project.id))
    Terminal().line(f"project {project.name} deleted")
    return 0


def run_show(arguments: argparse.Namespace, client: sync.Client) -> int:
    _show(_get(client, arguments.project))
    return 0


def run_allow(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Allow the entries, and with ``--only`` nothing else. Exit code 2 without both."""
    from wonder_sdk import v1

    if not (arguments.entries or arguments.only):
        return _missing_entries()
    project = _get(client, arguments.project)
    network = _network(project)
    network.http_only_allowed = network.http_only_allowed or arguments.only
    network.http_allow += [
        each for each in dict.fromkeys(arguments.entries) if each not in network.http_allow
    ]
    return _save(client, project, v1.Project(network=network))


def run_disallow(arguments: argparse.Namespace, client: sync.Client) -> int:
    """Withdraw the entries, or the restriction of ``--only``. Exit code 1 if an entry is not allowed."""
    from wonder_sdk import v1

    if not (arguments.entries or arguments.only):
        return _missing_entries()
    project = _get(client, arguments.project)
    network = _network(project)
    network.http_only_allowed = network.http_only_allowed and not arguments.only
    for each in arguments.entries:
        if each not in network.http_allow:
            allowed = ", ".join(network.http_allow) or "nothing"
            print(f"wonder: {project.name} does not allow {each}; it allows: {allowed}", file=sys.stderr)
            return 1
    network.http_allow = [each for each in network.http_allow if each not in arguments.entries]
    return _save(client, project, v1.Project(network=network))


def _missing_entries() -> int:
    print("wonder: name a HOST[:PORT], or set --only", file=sys.stderr)
    return 2


def run_shell(arguments: argparse.Namespace, client: sync.Client) -> int:
    from wonder_sdk import v1

    project = _get(client, arguments.project)
    network = _network(project)
    network.shell_network = arguments.switch == "on"
    return _save(client, project, v1.Project(network=network))


def _get(client: sync.Client, key: str) -> v1.Project:
    from wonder_sdk import v1

    project: v1.Project = client.library.get_project(v1.GetProjectRequest(project_id=key)).project
    return project


def _network(project: v1.Project) -> v1.NetworkPolicy:
    from wonder_sdk import v1

    return project.network or v1.NetworkPolicy()


def _save(client: sync.Client, project: v1.Project, change: v1.Project, field: str = "network") -> int:
    """Save the change. Raises AbortedError if the project has changed since it was read."""
    from wonder_sdk import v1
    from wonder_sdk._proto.google import protobuf

    change.id, change.etag = project.id, project.etag
    request = v1.UpdateProjectRequest(project=change, update_mask=protobuf.FieldMask(paths=[field]))
    _show(client.library.update_project(request).project)
    return 0


def _show(project: v1.Project) -> None:
    terminal, network = Terminal(), _network(project)
    terminal.line(f"project {project.name} ({project.id})", "bold")
    if project.description:
        terminal.line(project.description)
    public = "" if network.http_only_allowed else "public addresses"
    allowed = ", ".join([*filter(None, [public]), *network.http_allow]) or "nothing"
    terminal.line(f"http and mcp reach: {allowed}")
    for each in project.repositories:
        branch = f" ({each.default_branch})" if each.default_branch else ""
        terminal.line(f"repository {each.name}: {each.url}{branch}")
    if network.shell_network:
        terminal.line("shell reaches the same, over HTTP and CONNECT through the server's egress proxy")


def _add_project(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("project", metavar="PROJECT", help="Name or id of the project.")


_verb = partial(connection.add_verb, arguments=_add_project)
