package main

import "fmt"

// The invented organisations, accounts and repositories.
var (
	octoOrg    = account{"octo-org", 90000001, "Organization"}
	exampleOrg = account{"example-org", 90000002, "Organization"}

	author   = account{"example-author", 90000101, "User"}
	reviewer = account{"example-reviewer", 90000102, "User"}
	visitor  = account{"example-visitor", 90000103, "User"}
	robot    = account{"example-ci[bot]", 90000104, "Bot"}

	octoRepo = repo{
		owner: octoOrg, name: "octo-repo", id: 700000001, about: "A service that greets <everybody> & their cats 🐈",
		language: "Go", branch: "main", topics: list{"greeting", "grpc"}, issues: 7, stars: 128,
	}
	docsSite = repo{
		owner: octoOrg, name: "docs-site", id: 700000002, about: "The pages behind docs.example.com",
		language: "TypeScript", branch: "main", topics: list{"docs"}, issues: 2, stars: 14,
	}
	inventory = repo{
		owner: exampleOrg, name: "inventory", id: 700000003, about: "Stock keeping, größer gedacht",
		language: "Python", branch: "trunk", topics: none, issues: 31, stars: 9,
	}
)

// label of an issue or a pull request.
func label(r repo, id int64, name, color, about string) object {
	return obj("id", id, "node_id", nodeID("LA", id), "url", r.api()+"/labels/"+name, "name", name,
		"color", color, "default", false, "description", about)
}

// reactions of a comment or an issue.
func reactions(url string) object {
	return obj("url", url+"/reactions", "total_count", 0, "+1", 0, "-1", 0, "laugh", 0, "hooray", 0,
		"confused", 0, "heart", 0, "rocket", 0, "eyes", 0)
}

// milestone of an issue or a pull request.
func milestone(r repo, number int, title string) object {
	u := fmt.Sprintf("%s/milestones/%d", r.api(), number)
	id := 8800000 + int64(number)
	return obj("url", u, "html_url", fmt.Sprintf("%s/milestone/%d", r.web(), number), "labels_url", u+"/labels",
		"id", id, "node_id", nodeID("MI", id), "number", number, "title", title,
		"description", "What has to be there before "+title+" goes out.", "creator", reviewer.object(),
		"open_issues", 4, "closed_issues", 11, "state", "open", "created_at", "2025-04-01T07:00:00Z",
		"updated_at", "2025-06-01T12:30:44Z", "due_on", "2025-07-31T07:00:00Z", "closed_at", nil)
}

// commit as a push lists it.
func commit(r repo, message, date string, added, removed, modified list) object {
	id := sha(r.full() + message)
	return obj("id", id, "tree_id", sha("tree "+id), "distinct", true, "message", message, "timestamp", date,
		"url", r.web()+"/commit/"+id, "author", author.signature(date), "committer", author.signature(date),
		"added", added, "removed", removed, "modified", modified)
}

// issue in its long form; pull tells whether the issue is the talk of a pull request.
func issue(r repo, number int, title, body, state string, labels, assignees list, pull bool) object {
	u := fmt.Sprintf("%s/issues/%d", r.api(), number)
	html := fmt.Sprintf("%s/issues/%d", r.web(), number)
	id := r.id*10 + int64(number)
	var closed, reason, assignee any
	if state == "closed" {
		closed, reason = "2025-06-03T10:12:31Z", "completed"
	}
	if len(assignees) > 0 {
		assignee = assignees[0]
	}
	o := obj(
		"url", u,
		"repository_url", r.api(),
		"labels_url", u+"/labels{/name}",
		"comments_url", u+"/comments",
		"events_url", u+"/events",
		"html_url", html,
		"id", id,
		"node_id", nodeID("I", id),
		"number", number,
		"title", title,
		"user", visitor.object(),
		"labels", labels,
		"state", state,
		"locked", false,
		"assignee", assignee,
		"assignees", assignees,
		"milestone", milestone(r, 5, "v1.5"),
		"comments", 1,
		"created_at", "2025-06-02T16:20:05Z",
		"updated_at", "2025-06-03T10:12:31Z",
		"closed_at", closed,
		"author_association", "CONTRIBUTOR",
		"active_lock_reason", nil,
		"sub_issues_summary", obj("total", 0, "completed", 0, "percent_completed", 0),
	)
	if pull {
		p := fmt.Sprintf("%s/pull/%d", r.web(), number)
		o = o.with("draft", false, "pull_request", obj("url", fmt.Sprintf("%s/pulls/%d", r.api(), number),
			"html_url", p, "diff_url", p+".diff", "patch_url", p+".patch", "merged_at", nil))
	}
	return o.with("body", body, "reactions", reactions(u), "timeline_url", u+"/timeline",
		"performed_via_github_app", nil, "state_reason", reason)
}

// comment on an issue or a pull request.
func comment(r repo, number int, id int64, by account, body string) object {
	u := fmt.Sprintf("%s/issues/comments/%d", r.api(), id)
	return obj("url", u, "html_url", fmt.Sprintf("%s/issues/%d#issuecomment-%d", r.web(), number, id),
		"issue_url", fmt.Sprintf("%s/issues/%d", r.api(), number), "id", id, "node_id", nodeID("IC", id),
		"user", by.object(), "created_at", "2025-06-03T09:58:10Z", "updated_at", "2025-06-03T09:58:10Z",
		"author_association", "MEMBER", "body", body, "reactions", reactions(u), "performed_via_github_app", nil)
}

// pull is what differs between the pull requests of the demo.
type pull struct {
	repo      repo
	number    int
	title     string
	body      string
	branch    string
	state     string
	merged    bool
	draft     bool
	labels    list
	reviewers list
}

func (p pull) url() string { return fmt.Sprintf("%s/pulls/%d", p.repo.api(), p.number) }
func (p pull) web() string { return fmt.Sprintf("%s/pull/%d", p.repo.web(), p.number) }

func (p pull) id() int64 { return p.repo.id*3 + int64(p.number) }

// side is the head or the base of a pull request.
func (p pull) side(branch string) object {
	return obj("label", p.repo.owner.login+":"+branch, "ref", branch, "sha", sha(p.repo.full()+branch),
		"user", p.repo.owner.object(), "repo", p.repo.object().with("allow_squash_merge", true,
			"allow_merge_commit", false, "allow_rebase_merge", true, "allow_auto_merge", true,
			"delete_branch_on_merge", true, "allow_update_branch", true,
			"use_squash_pr_title_as_default", true, "squash_merge_commit_message", "PR_BODY",
			"squash_merge_commit_title", "PR_TITLE", "merge_commit_message", "PR_TITLE",
			"merge_commit_title", "MERGE_MESSAGE"))
}

// object is the form inside a pull_request event; the counts at the end are not in the
// form that the events of reviews have.
func (p pull) object() object {
	var mergedBy any
	if p.merged {
		mergedBy = reviewer.object()
	}
	return p.short().with(
		"merged", p.merged,
		"mergeable", nil,
		"rebaseable", nil,
		"mergeable_state", "unknown",
		"merged_by", mergedBy,
		"comments", 2,
		"review_comments", 1,
		"maintainer_can_modify", false,
		"commits", 3,
		"additions", 184,
		"deletions", 37,
		"changed_files", 6,
	)
}

func (p pull) short() object {
	var closed, merged, mergeSHA any
	if p.state == "closed" {
		closed = "2025-06-03T11:02:48Z"
	}
	if p.merged {
		merged, mergeSHA = closed, sha("merge "+p.title)
	}
	issue := fmt.Sprintf("%s/issues/%d", p.repo.api(), p.number)
	link := func(href string) object { return obj("href", href) }
	return obj(
		"url", p.url(),
		"id", p.id(),
		"node_id", nodeID("PR", p.id()),
		"html_url", p.web(),
		"diff_url", p.web()+".diff",
		"patch_url", p.web()+".patch",
		"issue_url", issue,
		"number", p.number,
		"state", p.state,
		"locked", false,
		"title", p.title,
		"user", author.object(),
		"body", p.body,
		"created_at", "2025-06-02T13:37:20Z",
		"updated_at", "2025-06-03T11:02:49Z",
		"closed_at", closed,
		"merged_at", merged,
		"merge_commit_sha", mergeSHA,
		"assignee", nil,
		"assignees", none,
		"requested_reviewers", p.reviewers,
		"requested_teams", none,
		"labels", p.labels,
		"milestone", nil,
		"draft", p.draft,
		"commits_url", p.url()+"/commits",
		"review_comments_url", p.url()+"/comments",
		"review_comment_url", p.repo.api()+"/pulls/comments{/number}",
		"comments_url", issue+"/comments",
		"statuses_url", p.repo.api()+"/statuses/"+sha(p.repo.full()+p.branch),
		"head", p.side(p.branch),
		"base", p.side(p.repo.branch),
		"_links", obj(
			"self", link(p.url()), "html", link(p.web()), "issue", link(issue), "comments", link(issue+"/comments"),
			"review_comments", link(p.url()+"/comments"),
			"review_comment", link(p.repo.api()+"/pulls/comments{/number}"),
			"commits", link(p.url()+"/commits"),
			"statuses", link(p.repo.api()+"/statuses/"+sha(p.repo.full()+p.branch)),
		),
		"author_association", "MEMBER",
		"auto_merge", nil,
		"active_lock_reason", nil,
	)
}

// ref is the short form of a pull request inside the runs of checks and workflows.
func (p pull) ref() object {
	side := func(branch string) object {
		return obj("ref", branch, "sha", sha(p.repo.full()+branch),
			"repo", obj("id", p.repo.id, "url", p.repo.api(), "name", p.repo.name))
	}
	return obj("url", p.url(), "id", p.id(), "number", p.number, "head", side(p.branch), "base", side(p.repo.branch))
}

// app is the invented application behind the checks.
func app() object {
	return obj("id", 700101, "client_id", "Iv1.0000000000000000", "slug", "example-ci", "node_id", nodeID("A", 700101),
		"owner", octoOrg.object(), "name", "Example CI", "description", "Runs the checks of the demo.",
		"external_url", "https://ci.example.com", "html_url", web+"/apps/example-ci",
		"created_at", "2024-01-09T10:00:00Z", "updated_at", "2025-01-20T10:00:00Z",
		"permissions", obj("actions", "write", "checks", "write", "contents", "read", "deployments", "write",
			"issues", "write", "members", "read", "metadata", "read", "pull_requests", "write", "statuses", "write"),
		"events", list{"check_run", "check_suite", "deployment", "pull_request", "push"})
}

// workflow and its run, with both repositories in their short form.
func workflow(r repo) object {
	const id = 55500101
	path := ".github/workflows/test.yml"
	return obj("id", id, "node_id", nodeID("W", id), "name", "test", "path", path, "state", "active",
		"created_at", "2024-03-02T12:42:30.000Z", "updated_at", "2025-05-03T19:24:48.000Z",
		"url", fmt.Sprintf("%s/actions/workflows/%d", r.api(), id),
		"html_url", r.web()+"/blob/"+r.branch+"/"+path, "badge_url", r.web()+"/workflows/test/badge.svg")
}

func workflowRun(p pull, id int64, status string, conclusion any) object {
	r := p.repo
	u := fmt.Sprintf("%s/actions/runs/%d", r.api(), id)
	head := sha(r.full() + p.branch)
	return obj(
		"id", id,
		"name", "test",
		"node_id", nodeID("WFR", id),
		"head_branch", p.branch,
		"head_sha", head,
		"path", ".github/workflows/test.yml",
		"display_title", p.title,
		"run_number", 412,
		"event", "pull_request",
		"status", status,
		"conclusion", conclusion,
		"workflow_id", 55500101,
		"check_suite_id", id*2,
		"check_suite_node_id", nodeID("CS", id*2),
		"url", u,
		"html_url", fmt.Sprintf("%s/actions/runs/%d", r.web(), id),
		"pull_requests", list{p.ref()},
		"created_at", "2025-06-03T10:40:02Z",
		"updated_at", "2025-06-03T10:44:51Z",
		"actor", author.object(),
		"run_attempt", 1,
		"referenced_workflows", none,
		"run_started_at", "2025-06-03T10:40:02Z",
		"triggering_actor", author.object(),
		"jobs_url", u+"/jobs",
		"logs_url", u+"/logs",
		"check_suite_url", fmt.Sprintf("%s/check-suites/%d", r.api(), id*2),
		"artifacts_url", u+"/artifacts",
		"cancel_url", u+"/cancel",
		"rerun_url", u+"/rerun",
		"previous_attempt_url", nil,
		"workflow_url", r.api()+"/actions/workflows/55500101",
		"head_commit", obj("id", head, "tree_id", sha("tree "+head), "message", p.title,
			"timestamp", "2025-06-03T10:39:40Z",
			"author", author.signature("2025-06-03T10:39:40Z").without("date").without("username"),
			"committer", author.signature("2025-06-03T10:39:40Z").without("date").without("username")),
		"repository", r.minimal(),
		"head_repository", r.minimal(),
	)
}

func checkRun(p pull, id int64, status string, conclusion, completed any, summary any) object {
	r := p.repo
	u := fmt.Sprintf("%s/check-runs/%d", r.api(), id)
	head := sha(r.full() + p.branch)
	suite := id * 2
	return obj(
		"id", id,
		"name", "lint",
		"node_id", nodeID("CR", id),
		"head_sha", head,
		"external_id", "lint-412",
		"url", u,
		"html_url", fmt.Sprintf("%s/runs/%d", r.web(), id),
		"details_url", "https://ci.example.com/runs/412",
		"status", status,
		"conclusion", conclusion,
		"started_at", "2025-06-03T10:40:12Z",
		"completed_at", completed,
		"output", obj("title", "lint", "summary", summary, "text", nil, "annotations_count", 0,
			"annotations_url", u+"/annotations"),
		"check_suite", obj("id", suite, "node_id", nodeID("CS", suite), "head_branch", p.branch, "head_sha", head,
			"status", status, "conclusion", conclusion,
			"url", fmt.Sprintf("%s/check-suites/%d", r.api(), suite), "before", sha(r.full()+r.branch), "after", head,
			"pull_requests", list{p.ref()}, "app", app(), "created_at", "2025-06-03T10:40:02Z",
			"updated_at", "2025-06-03T10:44:51Z"),
		"app", app(),
		"pull_requests", list{p.ref()},
	)
}

func deployment(r repo, id int64, environment string) object {
	u := fmt.Sprintf("%s/deployments/%d", r.api(), id)
	return obj("url", u, "id", id, "node_id", nodeID("DE", id), "task", "deploy", "original_environment", environment,
		"environment", environment, "description", "Roll out of "+r.branch, "created_at", "2025-06-03T11:10:00Z",
		"updated_at", "2025-06-03T11:12:44Z", "statuses_url", u+"/statuses", "repository_url", r.api(),
		"creator", robot.object(), "sha", sha(r.full()+r.branch), "ref", r.branch,
		"payload", obj("ticket", "CHG-1042", "regions", list{"eu-1", "us-2"}), "transient_environment", false,
		"production_environment", environment == "production", "performed_via_github_app", nil)
}
