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
	Environment     map[string]string `yaml:"environment"`
	Secrets         []string          `yaml:"secrets"`
	Ports           []string          `yaml:"ports"`
	Volumes         []string          `yaml:"volumes"`
	DependsOn       yaml.Node         `yaml:"depends_on"`
	Restart         string            `yaml:"restart"`
	StopGracePeriod string            `yaml:"stop_grace_period"`
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
	require.Contains(t, c.Services["sqlserver"].Image, "mssql/server:2022")
	require.Contains(t, c.Services["prometheus"].Image, "prom/prometheus:")
	require.Equal(t, ".", c.Services["server"].Build.Context)

	variables := map[string]bool{}
	for _, option := range config.Table() {
		variables[option.Env] = true
	}
	for name := range c.Services["server"].Environment {
		require.True(t, variables[name], "no option has the variable %s", name)
	}
	for name, s := range c.Services {
		require.NotEqual(t, s.Image == "", s.Build.Context == "", "%s has one of image and build", name)
		for _, port := range s.Ports {
			require.Regexp(t, `^127\.0\.0\.1:\d+:\d+$`, port, name)
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
			require.Contains(t, c.Secrets, secret)
		}
	}
	for _, secret := range c.Secrets {
		require.FileExists(t, filepath.Join("..", secret.File))
	}
	// The server's own URL and what the database is told must fit together.
	postgres := c.Services["postgres"].Environment
	require.Equal(t,
		"postgres://"+postgres["POSTGRES_USER"]+":"+postgres["POSTGRES_PASSWORD"]+"@postgres:5432/"+postgres["POSTGRES_DB"]+"?sslmode=disable",
		strings.TrimSpace(read(t, "deploy", "storage-url")))
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
				Image string `yaml:"image"`
			} `yaml:"services"`
			Strategy struct {
				Matrix map[string][]string `yaml:"matrix"`
			} `yaml:"strategy"`
			Steps []step `yaml:"steps"`
		} `yaml:"jobs"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, ".github", "workflows", "ci.yml")), &w))
	require.Equal(t, []string{"14", "15", "16", "17", "18"}, w.Jobs["postgres"].Strategy.Matrix["version"])
	require.Contains(t, w.Jobs["sqlserver"].Services["sqlserver"].Image, "mssql/server:2022")
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
