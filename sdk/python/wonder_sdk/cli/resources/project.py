"""``wonder project``: make projects, and say what their work may reach."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared import connection, listing
from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_EXAMPLES = """\
examples:
  wonder project list
      the projects of the server
  wonder project create shop --description "The shop's work."
      a project of its own; then: wonder run ... --project shop
  wonder project show default
      what it is, and what its work may reach
  wonder project allow default 127.0.0.1:8099
      let `http` and `mcp` reach this too, although it is not public: a host, an address or a range
      (ci.internal:8080, 10.0.0.0/8); without a port, every port of it
  wonder project disallow default 127.0.0.1:8099
      take it back
  wonder project repository shop code https://example.com/shop.git --branch main
      a code repository of it: a URL, or a folder of the server's machine below its repository_roots; without
      the URL it is taken away
  wonder project only default on
      reach nothing but what is allowed; `off`: all that is public too
  wonder project shell default on
      let commands of `shell` reach over HTTP and CONNECT, through the server's egress proxy, what `http`
      and `mcp` may reach; `off`: nothing, as in the beginning
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "project",
        help="make projects; say what their work may reach",
        description="Projects: whom work belongs to, and what it may reach on the network.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _verb(verbs, "list", "list the projects", run_list)
    create = _verb(verbs, "create", "make a project", run_create)
    create.add_argument("name", help="its name, unique on the server")
    create.add_argument("--description", default="", metavar="TEXT", help="what it is for")
    _named(_verb(verbs, "show", "show a project and what its work may reach", run_show))
    delete = _named(_verb(verbs, "delete", "delete a project and its artifacts", run_delete))
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask")
    for verb, what in (("allow", "let its work reach more"), ("disallow", "take that back")):
        parser = _named(_verb(verbs, verb, what, run_allow if verb == "allow" else run_disallow))
        parser.add_argument("entries", nargs="+", metavar="HOST[:PORT]", help="a host, an address or a range")
    repository = _named(_verb(verbs, "repository", "add a code repository, or take one away", run_repository))
    repository.add_argument("name", metavar="NAME", help="what it is called in the project")
    repository.add_argument(
        "url", nargs="?", default="", metavar="URL", help="where it is; none: take it away"
    )
    repository.add_argument("--branch", default="", metavar="NAME", help="its default branch (default: HEAD)")
    only = _named(_verb(verbs, "only", "whether nothing but what is allowed is reached", run_only))
    only.add_argument("switch", choices=("on", "off"))
    shell = _named(_verb(verbs, "shell", "whether commands in its sandboxes have a network", run_shell))
    shell.add_argument("switch", choices=("on", "off"))


def run_repository(arguments: argparse.Namespace, client: sync.Client) -> int:
    """1, and nothing is changed, if one is taken away that is not there."""
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
    """One line a project: name, description, id."""
    from wonder_sdk import v1

    rows: list[tuple[str, str, str]] = []
    token = ""
    while True:
        page = client.library.list_projects(v1.ListProjectsRequest(page_size=500, page_token=token))
        rows += ((each.name, each.id, each.description) for each in page.projects)
        token = page.next_page_token
        if not token:
            break
    listing.show(Terminal(), rows)
    return 0


def run_create(arguments: argparse.Namespace, client: sync.Client) -> int:
    from wonder_sdk import v1

    project = v1.Project(name=arguments.name, description=arguments.description)
    made = client.library.create_project(v1.CreateProjectRequest(project=project)).project
    Terminal().line(f"project {made.name} created ({made.id})")
    return 0


def run_delete(arguments: argparse.Namespace, client: sync.Client) -> int:
    """1, and nothing is deleted, if who was asked says no."""
    from wonder_sdk import v1

    project, terminal = _get(client, arguments.project), Terminal()
    if not arguments.yes and not terminal.confirm(f"Delete {project.name} and its artifacts?"):
        return 1
    client.library.delete_project(v1.DeleteProjectRequest(project_id=project.id))
    terminal.line(f"project {project.name} deleted")
    return 0


def run_show(arguments: argparse.Namespace, client: sync.Client) -> int:
    _show(_get(client, arguments.project))
    return 0


def run_allow(arguments: argparse.Namespace, client: sync.Client) -> int:
    """What is allowed already stays as it is."""
    from wonder_sdk import v1

    project = _get(client, arguments.project)
    network = _network(project)
    network.http_allow += [
        each for each in dict.fromkeys(arguments.entries) if each not in network.http_allow
    ]
    return _save(client, project, v1.Project(network=network))


def run_disallow(arguments: argparse.Namespace, client: sync.Client) -> int:
    """1, and nothing is changed, if something of it was not allowed."""
    from wonder_sdk import v1

    project = _get(client, arguments.project)
    network = _network(project)
    for each in arguments.entries:
        if each not in network.http_allow:
            there = ", ".join(network.http_allow) or "nothing"
            print(f"wonder: {project.name} does not name {each}; it names: {there}", file=sys.stderr)
            return 1
    network.http_allow = [each for each in network.http_allow if each not in arguments.entries]
    return _save(client, project, v1.Project(network=network))


def run_only(arguments: argparse.Namespace, client: sync.Client) -> int:
    from wonder_sdk import v1

    project = _get(client, arguments.project)
    network = _network(project)
    network.http_only_allowed = arguments.switch == "on"
    return _save(client, project, v1.Project(network=network))


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
    """Refused if somebody else changed the project since it was read."""
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
    public = "" if network.http_only_allowed else "all that is public"
    allowed = ", ".join([*filter(None, [public]), *network.http_allow]) or "nothing"
    terminal.line(f"http and mcp reach: {allowed}")
    for each in project.repositories:
        branch = f" ({each.default_branch})" if each.default_branch else ""
        terminal.line(f"repository {each.name}: {each.url}{branch}")
    if network.shell_network:
        terminal.line("shell reaches: the same, over HTTP and CONNECT through the server's egress proxy")


def _named(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("project", metavar="PROJECT", help="name or id of the project")
    return parser


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    what: str,
    command: connection.Command,
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
    connection.add_flags(verb)
    verb.set_defaults(run=connection.connected(command))
    return verb
