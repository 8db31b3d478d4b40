package main

import "fmt"

const (
	api = "https://api.github.com"
	web = "https://github.com"
)

// account is a user, an organisation or a bot.
type account struct {
	login string
	id    int64
	kind  string
}

// object is the long form, as the sender of an event or the owner of a repository.
func (a account) object() object {
	kind, prefix := a.kind, "U"
	if kind == "Organization" {
		prefix = "O"
	}
	u := api + "/users/" + a.login
	return obj(
		"login", a.login,
		"id", a.id,
		"node_id", nodeID(prefix, a.id),
		"avatar_url", fmt.Sprintf("https://avatars.githubusercontent.com/u/%d?v=4", a.id),
		"gravatar_id", "",
		"url", u,
		"html_url", web+"/"+a.login,
		"followers_url", u+"/followers",
		"following_url", u+"/following{/other_user}",
		"gists_url", u+"/gists{/gist_id}",
		"starred_url", u+"/starred{/owner}{/repo}",
		"subscriptions_url", u+"/subscriptions",
		"organizations_url", u+"/orgs",
		"repos_url", u+"/repos",
		"events_url", u+"/events{/privacy}",
		"received_events_url", u+"/received_events",
		"type", kind,
		"user_view_type", "public",
		"site_admin", false,
	)
}

// organization is the short form that stands beside the repository.
func (a account) organization() object {
	u := api + "/orgs/" + a.login
	return obj(
		"login", a.login,
		"id", a.id,
		"node_id", nodeID("O", a.id),
		"url", u,
		"repos_url", u+"/repos",
		"events_url", u+"/events",
		"hooks_url", u+"/hooks",
		"issues_url", u+"/issues",
		"members_url", u+"/members{/member}",
		"public_members_url", u+"/public_members{/member}",
		"avatar_url", fmt.Sprintf("https://avatars.githubusercontent.com/u/%d?v=4", a.id),
		"description", "An invented organisation of the QueueBox demo.",
	)
}

// signature names the author of a commit. The domain is one that is reserved for
// examples.
func (a account) signature(date string) object {
	return obj("name", a.login, "email", a.login+"@example.com", "date", date, "username", a.login)
}

// repo is a repository.
type repo struct {
	owner    account
	name     string
	id       int64
	about    string
	language any
	branch   string
	topics   list
	fork     bool
	issues   int
	stars    int
}

func (r repo) full() string { return r.owner.login + "/" + r.name }
func (r repo) api() string  { return api + "/repos/" + r.full() }
func (r repo) web() string  { return web + "/" + r.full() }

func (r repo) object() object {
	u := r.api()
	return obj(
		"id", r.id,
		"node_id", nodeID("R", r.id),
		"name", r.name,
		"full_name", r.full(),
		"private", false,
		"owner", r.owner.object(),
		"html_url", r.web(),
		"description", r.about,
		"fork", r.fork,
		"url", u,
		"forks_url", u+"/forks",
		"keys_url", u+"/keys{/key_id}",
		"collaborators_url", u+"/collaborators{/collaborator}",
		"teams_url", u+"/teams",
		"hooks_url", u+"/hooks",
		"issue_events_url", u+"/issues/events{/number}",
		"events_url", u+"/events",
		"assignees_url", u+"/assignees{/user}",
		"branches_url", u+"/branches{/branch}",
		"tags_url", u+"/tags",
		"blobs_url", u+"/git/blobs{/sha}",
		"git_tags_url", u+"/git/tags{/sha}",
		"git_refs_url", u+"/git/refs{/sha}",
		"trees_url", u+"/git/trees{/sha}",
		"statuses_url", u+"/statuses/{sha}",
		"languages_url", u+"/languages",
		"stargazers_url", u+"/stargazers",
		"contributors_url", u+"/contributors",
		"subscribers_url", u+"/subscribers",
		"subscription_url", u+"/subscription",
		"commits_url", u+"/commits{/sha}",
		"git_commits_url", u+"/git/commits{/sha}",
		"comments_url", u+"/comments{/number}",
		"issue_comment_url", u+"/issues/comments{/number}",
		"contents_url", u+"/contents/{+path}",
		"compare_url", u+"/compare/{base}...{head}",
		"merges_url", u+"/merges",
		"archive_url", u+"/{archive_format}{/ref}",
		"downloads_url", u+"/downloads",
		"issues_url", u+"/issues{/number}",
		"pulls_url", u+"/pulls{/number}",
		"milestones_url", u+"/milestones{/number}",
		"notifications_url", u+"/notifications{?since,all,participating}",
		"labels_url", u+"/labels{/name}",
		"releases_url", u+"/releases{/id}",
		"deployments_url", u+"/deployments",
		"created_at", "2023-02-14T08:11:27Z",
		"updated_at", "2025-06-02T14:03:09Z",
		"pushed_at", "2025-06-03T09:41:55Z",
		"git_url", "git://github.com/"+r.full()+".git",
		"ssh_url", "git@github.com:"+r.full()+".git",
		"clone_url", r.web()+".git",
		"svn_url", r.web(),
		"homepage", nil,
		"size", 4211,
		"stargazers_count", r.stars,
		"watchers_count", r.stars,
		"language", r.language,
		"has_issues", true,
		"has_projects", true,
		"has_downloads", true,
		"has_wiki", false,
		"has_pages", false,
		"has_discussions", false,
		"forks_count", 3,
		"mirror_url", nil,
		"archived", false,
		"disabled", false,
		"open_issues_count", r.issues,
		"license", obj(
			"key", "apache-2.0",
			"name", "Apache License 2.0",
			"spdx_id", "Apache-2.0",
			"url", api+"/licenses/apache-2.0",
			"node_id", "MDc6TGljZW5zZTI=",
		),
		"allow_forking", true,
		"is_template", false,
		"web_commit_signoff_required", false,
		"topics", r.topics,
		"visibility", "public",
		"forks", 3,
		"open_issues", r.issues,
		"watchers", r.stars,
		"default_branch", r.branch,
	)
}

// minimal is the short form inside the runs of a workflow: the links, and no counts.
func (r repo) minimal() object {
	out := object{}
	for _, f := range r.object() {
		if f.name == "created_at" {
			break
		}
		out = append(out, f)
	}
	return out
}
