package main

import "fmt"

// delivery is one well-formed webhook.
type delivery struct {
	name  string // of the file, without number and extension
	event string // X-GitHub-Event
	body  object
}

// on adds what stands at the end of nearly every payload.
func on(o object, r repo, sender account) object {
	return o.with("repository", r.object(), "organization", r.owner.organization(), "sender", sender.object())
}

// push builds the payload of a push of commits, oldest first.
func push(r repo, ref, before string, forced bool, commits ...object) object {
	after, head, created, deleted := "0000000000000000000000000000000000000000", any(nil), false, true
	all := none
	for _, c := range commits {
		all = append(all, c)
		after, head, deleted = c[0].value.(string), c, false
	}
	if before == "" {
		before, created = "0000000000000000000000000000000000000000", true
	}
	// The repository of a push has times as numbers and two fields more.
	repository := r.object().set("created_at", 1676362287).set("pushed_at", 1748943715).
		with("stargazers", r.stars, "master_branch", r.branch, "organization", r.owner.login)
	return obj("ref", ref, "before", before, "after", after, "repository", repository,
		"pusher", obj("name", author.login, "email", author.login+"@example.com"),
		"organization", r.owner.organization(), "sender", author.object(), "created", created, "deleted", deleted,
		"forced", forced, "base_ref", nil, "compare", fmt.Sprintf("%s/compare/%.12s...%.12s", r.web(), before, after),
		"commits", all, "head_commit", head)
}

// release builds a release.
func release(r repo, id int64, tag, body string, prerelease bool) object {
	u := fmt.Sprintf("%s/releases/%d", r.api(), id)
	asset := func(n int64, file string, size int) object {
		return obj("url", fmt.Sprintf("%s/releases/assets/%d", r.api(), n), "id", n, "node_id", nodeID("RA", n),
			"name", file, "label", "", "uploader", robot.object(), "content_type", "application/gzip",
			"state", "uploaded", "size", size, "download_count", 0, "created_at", "2025-06-03T12:00:08Z",
			"updated_at", "2025-06-03T12:00:09Z",
			"browser_download_url", fmt.Sprintf("%s/releases/download/%s/%s", r.web(), tag, file))
	}
	return obj("url", u, "assets_url", u+"/assets",
		"upload_url", fmt.Sprintf("https://uploads.github.com/repos/%s/releases/%d/assets{?name,label}", r.full(), id),
		"html_url", r.web()+"/releases/tag/"+tag, "id", id, "author", reviewer.object(), "node_id", nodeID("RE", id),
		"tag_name", tag, "target_commitish", r.branch, "name", tag, "draft", false, "prerelease", prerelease,
		"created_at", "2025-06-03T11:58:00Z", "published_at", "2025-06-03T12:00:00Z",
		"assets", list{asset(id+1, r.name+"_linux_amd64.tar.gz", 8123456), asset(id+2, r.name+"_linux_arm64.tar.gz", 7654321)},
		"tarball_url", r.api()+"/tarball/"+tag, "zipball_url", r.api()+"/zipball/"+tag, "body", body)
}

// deliveries is the whole day of webhooks, in the order of their arrival.
func deliveries() []delivery {
	bug := label(octoRepo, 6600001, "bug", "d73a4a", "Something is not as it should be")
	docs := label(docsSite, 6600002, "documentation", "0075ca", "About the pages")
	urgent := label(inventory, 6600003, "urgent", "b60205", "Today, please")

	greeting := pull{
		repo: octoRepo, number: 87, title: "Greet in the language of the caller", branch: "greet-in-language",
		body:  "The header `Accept-Language` decides.\r\n\r\n- [x] table of greetings\r\n- [x] fallback is English\r\n- [ ] right-to-left scripts\r\n\r\nCloses #81.",
		state: "open", labels: none, reviewers: none,
	}
	dark := pull{
		repo: docsSite, number: 12, title: "Dark mode", branch: "dark", body: "Not everybody reads at noon.",
		state: "closed", labels: list{docs}, reviewers: none,
	}
	stock := pull{
		repo: inventory, number: 240, title: "Count pallets, not boxes", branch: "pallets",
		body: "Boxes are on pallets. We count pallets and multiply.", state: "open", labels: list{urgent}, reviewers: list{reviewer.object()},
	}
	merged := greeting
	merged.state, merged.merged, merged.labels = "closed", true, list{bug}
	labelled := greeting
	labelled.labels = list{bug}

	typo := issue(docsSite, 11, "Typo on the start page", "It says \"Wellcome\".", "open", none, none, false)
	cats := issue(octoRepo, 81, "Cats are greeted twice", "Steps:\r\n1. send a cat\r\n2. read the log\r\n\r\n```\nhello cat\nhello cat\n```", "open", none, none, false)
	catsTaken := issue(octoRepo, 81, "Cats are greeted twice", "Steps:\r\n1. send a cat\r\n2. read the log", "open", list{bug}, list{author.object()}, false)
	catsDone := issue(octoRepo, 81, "Cats are greeted twice", "Steps:\r\n1. send a cat\r\n2. read the log", "closed", list{bug}, list{author.object()}, false)
	negative := issue(inventory, 239, "Stock is negative after midnight", "Since Tuesday. 在庫がマイナスです。", "open", list{urgent}, none, false)

	first := commit(octoRepo, "Read the language of the caller\n\nThe header decides.", "2025-06-02T15:30:00+02:00", list{"greet/language.go", "greet/language_test.go"}, none, list{"greet/greet.go"})
	second := commit(octoRepo, "Add the table of greetings", "2025-06-02T15:32:10+02:00", list{"greet/table.go"}, none, none)
	third := commit(octoRepo, "Greet cats once", "2025-06-02T15:36:44+02:00", none, list{"greet/cat_legacy.go"}, list{"greet/cat.go", "CHANGELOG.md"})
	readme := commit(docsSite, "Say how to build the pages", "2025-06-03T08:01:12+02:00", none, none, list{"README.md"})
	pallets := commit(inventory, "Count pallets, not boxes", "2025-06-03T09:41:50+02:00", list{"stock/pallet.py"}, list{"stock/box.py"}, list{"stock/count.py", "tests/test_count.py"})

	review := obj("id", int64(2900000001), "node_id", nodeID("PRR", 2900000001), "user", reviewer.object(),
		"body", "Short and clear. One question inside.", "commit_id", sha(octoRepo.full()+greeting.branch),
		"submitted_at", "2025-06-03T10:20:00Z", "state", "approved",
		"html_url", greeting.web()+"#pullrequestreview-2900000001", "pull_request_url", greeting.url(),
		"author_association", "MEMBER",
		"_links", obj("html", obj("href", greeting.web()+"#pullrequestreview-2900000001"), "pull_request", obj("href", greeting.url())))
	note := obj("url", octoRepo.api()+"/pulls/comments/2900000002", "pull_request_review_id", int64(2900000001),
		"id", int64(2900000002), "node_id", nodeID("PRRC", 2900000002),
		"diff_hunk", "@@ -14,3 +14,9 @@ func Greet(w io.Writer, c Caller) error {\n+\tlang := c.Header(\"Accept-Language\")\n+\tif lang == \"\" {\n+\t\tlang = \"en\"\n+\t}",
		"path", "greet/greet.go", "commit_id", sha(octoRepo.full()+greeting.branch),
		"original_commit_id", sha(octoRepo.full()+greeting.branch), "user", reviewer.object(),
		"body", "Is `en` right where the caller says `*`?", "created_at", "2025-06-03T10:19:31Z",
		"updated_at", "2025-06-03T10:20:00Z", "html_url", greeting.web()+"#discussion_r2900000002",
		"pull_request_url", greeting.url(), "author_association", "MEMBER",
		"_links", obj("self", obj("href", octoRepo.api()+"/pulls/comments/2900000002"),
			"html", obj("href", greeting.web()+"#discussion_r2900000002"), "pull_request", obj("href", greeting.url())),
		"reactions", reactions(octoRepo.api()+"/pulls/comments/2900000002"), "start_line", nil,
		"original_start_line", nil, "start_side", nil, "line", 17, "original_line", 17, "side", "RIGHT",
		"original_position", 4, "position", 4, "subject_type", "line")

	forkOf := octoRepo
	forkOf.owner, forkOf.id, forkOf.fork, forkOf.stars, forkOf.issues = visitor, 700000099, true, 0, 0

	prod := deployment(octoRepo, 3300000001, "production")
	status := func(id int64, state, about string) object {
		return obj("url", fmt.Sprintf("%s/statuses/%d", prod[0].value, id), "id", id, "node_id", nodeID("DS", id),
			"state", state, "creator", robot.object(), "description", about, "environment", "production",
			"target_url", "https://deploy.example.com/3300000001", "created_at", "2025-06-03T11:12:44Z",
			"updated_at", "2025-06-03T11:12:44Z", "deployment_url", prod[0].value, "repository_url", octoRepo.api(),
			"environment_url", "https://greet.example.com", "log_url", "https://deploy.example.com/3300000001/log",
			"performed_via_github_app", nil)
	}
	pr := func(action string, p pull) object {
		return obj("action", action, "number", p.number, "pull_request", p.object())
	}
	hook := obj("type", "Repository", "id", 480000001, "name", "web", "active", true,
		"events", list{"*"}, "config", obj("content_type", "json", "insecure_ssl", "0", "secret", "********",
			"url", "https://hooks.example.com/github"),
		"updated_at", "2025-06-02T12:00:00Z", "created_at", "2025-06-02T12:00:00Z",
		"url", octoRepo.api()+"/hooks/480000001", "test_url", octoRepo.api()+"/hooks/480000001/test",
		"ping_url", octoRepo.api()+"/hooks/480000001/pings", "deliveries_url", octoRepo.api()+"/hooks/480000001/deliveries",
		"last_response", obj("code", nil, "status", "unused", "message", nil))

	return []delivery{
		{"ping", "ping", on(obj("zen", "Practicality beats purity.", "hook_id", 480000001, "hook", hook), octoRepo, author)},
		{"push-branch", "push", push(octoRepo, "refs/heads/greet-in-language", "", false, first, second)},
		{"create-branch", "create", on(obj("ref", "greet-in-language", "ref_type", "branch", "master_branch", "main", "description", octoRepo.about, "pusher_type", "user"), octoRepo, author)},
		{"pull_request-opened", "pull_request", on(pr("opened", greeting), octoRepo, author)},
		{"issues-opened", "issues", on(obj("action", "opened", "issue", cats), octoRepo, visitor)},
		{"issues-opened-docs", "issues", on(obj("action", "opened", "issue", typo), docsSite, visitor)},
		{"issues-labeled", "issues", on(obj("action", "labeled", "issue", catsTaken, "label", bug), octoRepo, reviewer)},
		{"issues-assigned", "issues", on(obj("action", "assigned", "issue", catsTaken, "assignee", author.object()), octoRepo, reviewer)},
		{"push-more", "push", push(octoRepo, "refs/heads/greet-in-language", second[0].value.(string), false, third)},
		{"pull_request-synchronize", "pull_request", on(pr("synchronize", greeting).with("before", second[0].value, "after", third[0].value), octoRepo, author)},
		{"workflow_run-requested", "workflow_run", on(obj("action", "requested", "workflow_run", workflowRun(greeting, 15400000001, "queued", nil), "workflow", workflow(octoRepo)), octoRepo, author)},
		{"check_run-created", "check_run", on(obj("action", "created", "check_run", checkRun(greeting, 43200000001, "in_progress", nil, nil, nil)), octoRepo, robot)},
		{"check_run-completed", "check_run", on(obj("action", "completed", "check_run", checkRun(greeting, 43200000001, "completed", "success", "2025-06-03T10:44:51Z", "No findings.")), octoRepo, robot)},
		{"workflow_run-completed", "workflow_run", on(obj("action", "completed", "workflow_run", workflowRun(greeting, 15400000001, "completed", "success"), "workflow", workflow(octoRepo)), octoRepo, author)},
		{"status-success", "status", on(obj("id", int64(31000000001), "sha", sha(octoRepo.full()+greeting.branch), "name", octoRepo.full(), "target_url", "https://ci.example.com/runs/412", "avatar_url", "https://avatars.githubusercontent.com/u/90000104?v=4", "context", "ci/example", "description", "412 tests passed", "state", "success", "branches", list{obj("name", greeting.branch, "commit", obj("sha", sha(octoRepo.full()+greeting.branch), "url", octoRepo.api()+"/commits/"+sha(octoRepo.full()+greeting.branch)), "protected", false)}, "created_at", "2025-06-03T10:45:00+00:00", "updated_at", "2025-06-03T10:45:00+00:00"), octoRepo, robot)},
		{"pull_request-labeled", "pull_request", on(pr("labeled", labelled).with("label", bug), octoRepo, reviewer)},
		{"pull_request_review-submitted", "pull_request_review", on(obj("action", "submitted", "review", review, "pull_request", labelled.short()), octoRepo, reviewer)},
		{"pull_request_review_comment-created", "pull_request_review_comment", on(obj("action", "created", "comment", note, "pull_request", labelled.short()), octoRepo, reviewer)},
		{"issue_comment-created-pull", "issue_comment", on(obj("action", "created", "issue", issue(octoRepo, 87, greeting.title, greeting.body, "open", list{bug}, none, true), "comment", comment(octoRepo, 87, 3100000001, reviewer, "Merging when the check is green.")), octoRepo, reviewer)},
		{"pull_request-closed-merged", "pull_request", on(pr("closed", merged), octoRepo, reviewer)},
		{"push-main", "push", push(octoRepo, "refs/heads/main", sha("main before"), false, first, second, third)},
		{"delete-branch", "delete", on(obj("ref", "greet-in-language", "ref_type", "branch", "pusher_type", "user"), octoRepo, reviewer)},
		{"push-deleted", "push", push(octoRepo, "refs/heads/greet-in-language", third[0].value.(string), false)},
		{"issues-closed", "issues", on(obj("action", "closed", "issue", catsDone), octoRepo, author)},
		{"create-tag", "create", on(obj("ref", "v1.5.0", "ref_type", "tag", "master_branch", "main", "description", octoRepo.about, "pusher_type", "user"), octoRepo, reviewer)},
		{"release-published", "release", on(obj("action", "published", "release", release(octoRepo, 220000001, "v1.5.0", "## What is new\r\n\r\n* Greetings in the language of the caller (#87)\r\n* Cats are greeted once (#81)", false)), octoRepo, reviewer)},
		{"deployment-created", "deployment", on(obj("action", "created", "deployment", prod, "workflow", nil, "workflow_run", nil), octoRepo, robot)},
		{"deployment_status-in_progress", "deployment_status", on(obj("action", "created", "deployment_status", status(810000001, "in_progress", "2 of 4 instances"), "deployment", prod, "check_run", nil, "workflow", nil, "workflow_run", nil), octoRepo, robot)},
		{"deployment_status-success", "deployment_status", on(obj("action", "created", "deployment_status", status(810000002, "success", "4 of 4 instances"), "deployment", prod, "check_run", nil, "workflow", nil, "workflow_run", nil), octoRepo, robot)},
		{"star-created", "star", on(obj("action", "created", "starred_at", "2025-06-03T12:31:07Z"), octoRepo, visitor)},
		{"watch-started", "watch", on(obj("action", "started"), octoRepo, visitor)},
		{"fork", "fork", on(obj("forkee", forkOf.object().with("public", true)), octoRepo, visitor)},
		{"push-docs", "push", push(docsSite, "refs/heads/main", sha("docs before"), false, readme)},
		{"issue_comment-created", "issue_comment", on(obj("action", "created", "issue", typo, "comment", comment(docsSite, 11, 3100000002, author, "Thank you, mended in the next build.")), docsSite, author)},
		{"pull_request-closed-unmerged", "pull_request", on(pr("closed", dark), docsSite, author)},
		{"star-deleted", "star", on(obj("action", "deleted", "starred_at", nil), docsSite, visitor)},
		{"issues-opened-inventory", "issues", on(obj("action", "opened", "issue", negative), inventory, visitor)},
		{"push-forced", "push", push(inventory, "refs/heads/pallets", sha("pallets before"), true, pallets)},
		{"pull_request-review_requested", "pull_request", on(pr("review_requested", stock).with("requested_reviewer", reviewer.object()), inventory, author)},
		{"workflow_run-failed", "workflow_run", on(obj("action", "completed", "workflow_run", workflowRun(stock, 15400000002, "completed", "failure"), "workflow", workflow(inventory)), inventory, author)},
		{"issue_comment-deleted", "issue_comment", on(obj("action", "deleted", "issue", negative, "comment", comment(inventory, 239, 3100000003, visitor, "me too")), inventory, visitor)},
		{"commit_comment-created", "commit_comment", on(obj("action", "created", "comment", obj("url", inventory.api()+"/comments/160000001", "html_url", inventory.web()+"/commit/"+pallets[0].value.(string)+"#commitcomment-160000001", "id", 160000001, "node_id", nodeID("CC", 160000001), "user", reviewer.object(), "position", nil, "line", nil, "path", nil, "commit_id", pallets[0].value, "created_at", "2025-06-03T13:05:00Z", "updated_at", "2025-06-03T13:05:00Z", "author_association", "MEMBER", "body", "What about half pallets?", "reactions", reactions(inventory.api()+"/comments/160000001"))), inventory, reviewer)},
	}
}

// broken is a delivery that no worker can do anything with.
type broken struct {
	name        string
	event       string
	contentType string
	body        []byte
}

// malformed are the deliveries that end in the dead-letter state, one for each way in
// which a body is useless.
func malformed() ([]broken, error) {
	whole, err := encode(push(octoRepo, "refs/heads/main", sha("cut"), false, commit(octoRepo, "Cut on its way", "2025-06-03T14:00:00+02:00", none, none, list{"greet/greet.go"})))
	if err != nil {
		return nil, fmt.Errorf("encode the push to cut: %w", err)
	}
	wrong, err := encode(obj("action", "opened", "issue", issue(docsSite, 13, "A list where an object should be", "", "open", none, none, false),
		"repository", list{docsSite.object()}, "sender", visitor.object()))
	if err != nil {
		return nil, fmt.Errorf("encode the wrong type: %w", err)
	}
	missing, err := encode(obj("action", "created", "starred_at", "2025-06-03T14:02:00Z", "organization", octoOrg.organization(), "sender", visitor.object()))
	if err != nil {
		return nil, fmt.Errorf("encode the missing repository: %w", err)
	}
	return []broken{
		{"push-truncated.json", "push", "application/json", whole[:len(whole)*2/3]},
		{"issues-wrong-type.json", "issues", "application/json", wrong},
		{"star-without-repository.json", "star", "application/json", missing},
		{"watch-form-encoded.txt", "watch", "application/x-www-form-urlencoded", []byte("payload=%7B%22action%22%3A%22started%22%2C%22repository%22%3A%7B%22full_name%22%3A%22octo-org%2Focto-repo%22%7D%7D")},
	}, nil
}
