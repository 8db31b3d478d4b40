// Package deploy_test reads the files that no build looks at, since a misspelt variable
// or port in them would be found by a user.
package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/queuebox/queuebox/internal/config"
	"github.com/queuebox/queuebox/internal/testdb"
	"github.com/queuebox/queuebox/storage/backends"
)

func read(t *testing.T, path ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{".."}, path...)...))
	require.NoError(t, err)
	return string(content)
}

// decode is strict about duplicate keys and about keys that the type does not name.
func decode(t *testing.T, into any, path ...string) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(read(t, path...)))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(into), path)
}

// compose holds the keys of the compose specification that our file uses.
type compose struct {
	Name     string             `yaml:"name"`
	Services map[string]service `yaml:"services"`
	Secrets  map[string]struct {
		File string `yaml:"file"`
	} `yaml:"secrets"`
	Volumes map[string]struct{} `yaml:"volumes"`
}

type service struct {
	Image string `yaml:"image"`
	Build struct {
		Context string `yaml:"context"`
	} `yaml:"build"`
	Profiles    []string          `yaml:"profiles"`
	Environment map[string]string `yaml:"environment"`
	Secrets     []struct {
		Source string `yaml:"source"`
		Target string `yaml:"target"`
	} `yaml:"secrets"`
	Entrypoint      []string  `yaml:"entrypoint"`
	Command         []string  `yaml:"command"`
	MemLimit        string    `yaml:"mem_limit"`
	Ports           []string  `yaml:"ports"`
	Volumes         []string  `yaml:"volumes"`
	DependsOn       yaml.Node `yaml:"depends_on"`
	Restart         string    `yaml:"restart"`
	StopGracePeriod string    `yaml:"stop_grace_period"`
	Healthcheck     *struct {
		Test     []string `yaml:"test"`
		Interval string   `yaml:"interval"`
		Timeout  string   `yaml:"timeout"`
		Retries  int      `yaml:"retries"`
	} `yaml:"healthcheck"`
}

func TestComposeFile(t *testing.T) {
	var c compose
	decode(t, &c, "docker-compose.yml")
	require.Equal(t, "postgres:17", c.Services["postgres"].Image)
	require.Contains(t, c.Services["prometheus"].Image, "prom/prometheus:")
	require.Equal(t, ".", c.Services["server"].Build.Context)

	variables := map[string]bool{}
	for _, option := range config.Table() {
		variables[option.Env] = true
	}
	for name := range c.Services["server"].Environment {
		require.True(t, variables[name], "no option has the variable %s", name)
	}
	published := map[string]string{}
	for name, s := range c.Services {
		require.NotEqual(t, s.Image == "", s.Build.Context == "", "%s has one of image and build", name)
		for _, port := range s.Ports {
			require.Regexp(t, `^127\.0\.0\.1:\d+:\d+$`, port, name)
			host := strings.Split(port, ":")[1]
			require.Empty(t, published[host], "port %s of the host is that of two services", host)
			published[host] = name
		}
		for _, volume := range s.Volumes {
			source, _, found := strings.Cut(volume, ":")
			require.True(t, found, volume)
			if strings.HasPrefix(source, ".") {
				require.FileExists(t, filepath.Join("..", source))
				continue
			}
			require.Contains(t, c.Volumes, source)
		}
		for _, secret := range s.Secrets {
			require.Contains(t, c.Secrets, secret.Source)
			require.Equal(t, "/run/secrets/"+secret.Target, s.Environment["QUEUEBOX_STORAGE_FILE"], name)
		}
	}
	for _, secret := range c.Secrets {
		require.FileExists(t, filepath.Join("..", secret.File))
	}
	// The server's own URL and what the database is told must fit together, and be a URL that the
	// server takes.
	postgres, mariadb, mysql, mssql := env(c, "postgres"), env(c, "mariadb"), env(c, "mysql"), env(c, "sqlserver")
	for service, want := range map[string]string{
		"server": "postgres://" + postgres["POSTGRES_USER"] + ":" + postgres["POSTGRES_PASSWORD"] + "@postgres:5432/" +
			postgres["POSTGRES_DB"] + "?sslmode=disable",
		"server-mariadb": "mariadb://" + mariadb["MARIADB_USER"] + ":" + mariadb["MARIADB_PASSWORD"] + "@mariadb:3306/" +
			mariadb["MARIADB_DATABASE"],
		"server-mysql": "mysql://" + mysql["MYSQL_USER"] + ":" + mysql["MYSQL_PASSWORD"] + "@mysql:3306/" + mysql["MYSQL_DATABASE"],
		"server-sqlserver": "sqlserver://sa:" + mssql["MSSQL_SA_PASSWORD"] +
			"@sqlserver:1433?database=queuebox&TrustServerCertificate=true",
	} {
		file := c.Secrets[c.Services[service].Secrets[0].Source].File
		require.Equal(t, want, strings.TrimSpace(read(t, file)), service)
		require.NoError(t, backends.Check(want), service)
	}
	require.Contains(t, c.Services["sqlserver-database"].Command[0], "CREATE DATABASE queuebox")
	require.Equal(t, mssql["MSSQL_SA_PASSWORD"], env(c, "sqlserver-database")["MSSQL_SA_PASSWORD"])
}

func env(c compose, service string) map[string]string { return c.Services[service].Environment }

// What another engine needs is a profile of its own, so that nobody starts SQL Server who wants
// a look at QueueBox. A database is waited for until it answers a statement.
func TestEnginesOfTheComposeFile(t *testing.T) {
	var c compose
	decode(t, &c, "docker-compose.yml")
	for profile, image := range map[string]string{
		"mariadb": "mariadb:11.8", "mysql": "mysql:8.4", "sqlserver": "mcr.microsoft.com/mssql/server:2022-latest",
	} {
		database, server := c.Services[profile], c.Services["server-"+profile]
		require.Equal(t, image, database.Image)
		require.Equal(t, []string{profile}, database.Profiles)
		require.Equal(t, []string{profile}, server.Profiles)
		require.Equal(t, c.Services["server"].Environment, server.Environment)
		require.NotNil(t, database.Healthcheck, profile)
		require.Contains(t, strings.Join(database.Healthcheck.Test, " "), "SELECT 1", profile)
		require.GreaterOrEqual(t, database.Healthcheck.Retries, 60, "the first start makes the data directory")
	}
	for _, always := range []string{"server", "postgres", "prometheus"} {
		require.Empty(t, c.Services[always].Profiles)
	}
	mssql := c.Services["sqlserver"]
	require.Regexp(t, `sqlcmd -C `, strings.Join(mssql.Healthcheck.Test, " "), "the tools refuse the certificate otherwise")
	require.Equal(t, "3g", mssql.MemLimit, "it does not start with less than 2 GB")
	require.Equal(t, "2048", mssql.Environment["MSSQL_MEMORY_LIMIT_MB"])
}

func TestPrometheusScrapesTheServer(t *testing.T) {
	var c compose
	decode(t, &c, "docker-compose.yml")
	var p struct {
		Global struct {
			ScrapeInterval     string `yaml:"scrape_interval"`
			EvaluationInterval string `yaml:"evaluation_interval"`
		} `yaml:"global"`
		ScrapeConfigs []struct {
			JobName       string `yaml:"job_name"`
			StaticConfigs []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	decode(t, &p, "deploy", "prometheus.yml")
	listen := c.Services["server"].Environment["QUEUEBOX_METRICS_LISTEN"]
	require.Equal(t, []string{strings.Replace(listen, "0.0.0.0", "server", 1)}, p.ScrapeConfigs[0].StaticConfigs[0].Targets)
}

// step is what one job of the workflow does.
type step struct {
	Uses string `yaml:"uses"`
	Run  string `yaml:"run"`
}

func TestImageAndWorkflowUseTheToolchainOfTheModule(t *testing.T) {
	match := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))
	require.Len(t, match, 2)
	dockerfile := read(t, "Dockerfile")
	require.Contains(t, dockerfile, "FROM golang:"+match[1]+" AS build")
	require.Contains(t, dockerfile, "CGO_ENABLED=0")
	require.Regexp(t, `(?m)^USER 65532`, dockerfile)

	var w struct {
		Jobs map[string]struct {
			Services map[string]struct {
				Image   string            `yaml:"image"`
				Env     map[string]string `yaml:"env"`
				Options string            `yaml:"options"`
			} `yaml:"services"`
			Env      map[string]string `yaml:"env"`
			Strategy struct {
				Matrix map[string][]string `yaml:"matrix"`
			} `yaml:"strategy"`
			Steps []step `yaml:"steps"`
		} `yaml:"jobs"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, ".github", "workflows", "ci.yml")), &w))
	require.Equal(t, []string{"14", "15", "16", "17", "18"}, w.Jobs["postgres"].Strategy.Matrix["version"])
	mysql := w.Jobs["mysql"]
	require.Equal(t, []string{"mysql:8.0", "mysql:8.4", "mariadb:10.6", "mariadb:11.4", "mariadb:11.8"}, mysql.Strategy.Matrix["image"])
	require.Contains(t, mysql.Env[testdb.EnvMySQL], ":"+mysql.Services["database"].Env["MYSQL_ROOT_PASSWORD"]+"@")
	mssql := w.Jobs["sqlserver"]
	require.Equal(t, []string{"2019", "2022", "2025"}, mssql.Strategy.Matrix["version"])
	require.Equal(t, []string{"off", "on"}, mssql.Strategy.Matrix["snapshot"])
	require.Equal(t, "mcr.microsoft.com/mssql/server:${{ matrix.version }}-latest", mssql.Services["sqlserver"].Image)
	require.Equal(t, "${{ matrix.snapshot }}", mssql.Env[testdb.EnvMSSQLSnapshot])
	require.Contains(t, mssql.Env[testdb.EnvMSSQL], ":"+mssql.Services["sqlserver"].Env["MSSQL_SA_PASSWORD"]+"@")
	require.Regexp(t, `sqlcmd.* -C `, mssql.Services["sqlserver"].Options)
	for engine, dir := range map[string]string{"mysql": "mysql", "sqlserver": "mssql"} {
		job := w.Jobs[engine]
		require.Contains(t, job.Env[testdb.EnvRequire], dir, "a database that does not come fails the job")
		for _, service := range job.Services {
			require.Contains(t, service.Options, "SELECT 1", engine)
		}
		var runs []string
		for _, step := range job.Steps {
			runs = append(runs, step.Run)
		}
		all := strings.Join(runs, "\n")
		for _, what := range []string{"./storage/" + dir + "/...", "-run '/" + dir + "' ./internal/blackbox", "-run 'TestStress/" + dir + "' ./internal/stress"} {
			require.Contains(t, all, what)
		}
	}
	for name, job := range w.Jobs {
		require.NotEmpty(t, job.Steps, name)
		for _, step := range job.Steps {
			require.NotEqual(t, step.Uses == "", step.Run == "", "a step of %s does one thing", name)
			if step.Uses != "" {
				require.Regexp(t, `@v\d+$`, step.Uses, "the major version of an action is pinned")
			}
		}
	}
	require.True(t, slices.ContainsFunc(w.Jobs["ci"].Steps, func(s step) bool { return s.Run == ".ci/run" }))
}
