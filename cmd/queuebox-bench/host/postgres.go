package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrNoPostgres says that no binaries of PostgreSQL were found.
var ErrNoPostgres = errors.New("no PostgreSQL found: install it (Debian: apt-get install postgresql), or let QUEUEBOX_PG_BIN name the directory of initdb and postgres")

// Settings are the lines of postgresql.conf that differ from what initdb writes. Durability is
// the default; the rest keeps a checkpoint out of a window, where it would hit one contender.
func Settings() []string {
	return []string{
		"fsync = on",
		"synchronous_commit = on",
		"full_page_writes = on",
		"shared_buffers = 1GB",
		"max_wal_size = 16GB",
		"checkpoint_timeout = 1h",
		"max_connections = 300",
		"shared_preload_libraries = 'pg_stat_statements'",
		"pg_stat_statements.track = top",
	}
}

// Postgres is a private server in a temporary directory.
type Postgres struct {
	// Version is what the server says about itself.
	Version string

	dir     string
	address string
	process *Process
}

// BinDir finds the directory of initdb and postgres, the newest first, as scripts/with-postgres
// does.
func BinDir() (string, error) {
	var dirs []string
	if dir := os.Getenv("QUEUEBOX_PG_BIN"); dir != "" {
		dirs = append(dirs, dir)
	}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(debian, func(a, b string) int {
		return debianVersion(b) - debianVersion(a)
	})
	dirs = append(dirs, debian...)
	for _, pattern := range []string{"/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin"} {
		more, _ := filepath.Glob(pattern)
		dirs = append(dirs, more...)
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, dir := range dirs {
		if executable(filepath.Join(dir, "initdb")) && executable(filepath.Join(dir, "postgres")) {
			return dir, nil
		}
	}
	return "", ErrNoPostgres
}

func debianVersion(dir string) int {
	v, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return v
}

func executable(path string) bool {
	info, err := os.Stat(path) //nolint:gosec // a directory that the person who runs this named
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// StartPostgres makes a cluster in a new directory under parent and starts it.
func StartPostgres(ctx context.Context, parent string) (_ *Postgres, err error) {
	bin, err := BinDir()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "postgres-")
	if err != nil {
		return nil, fmt.Errorf("directory of PostgreSQL: %w", err)
	}
	p := &Postgres{dir: dir}
	defer func() {
		if err != nil {
			p.Stop()
		}
	}()
	owner, err := unprivileged(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	//nolint:gosec // the program is the one that was found, the arguments are ours
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	initdb.Dir = dir
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Setpgid: true}
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	p.address, err = FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(p.address)
	arguments := []string{"-D", data, "-c", "listen_addresses=127.0.0.1", "-c", "port=" + port, "-c", "unix_socket_directories="}
	if err := addSettings(filepath.Join(data, "postgresql.conf")); err != nil {
		return nil, err
	}
	//nolint:gosec,noctx // as above; the server ends with Stop
	cmd := exec.Command(filepath.Join(bin, "postgres"), arguments...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
	if p.process, err = Start("postgres", cmd); err != nil {
		return nil, err
	}
	err = p.process.WaitUntil(ctx, func(ctx context.Context) bool {
		text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
		if err != nil || !bytes.Contains(text, []byte("\nready")) {
			return false
		}
		return p.Exec(ctx, "postgres", "SELECT 1") == nil
	})
	if err != nil {
		return nil, err
	}
	if err := p.Exec(ctx, "postgres", "CREATE EXTENSION pg_stat_statements"); err != nil {
		return nil, fmt.Errorf("%w: its contributed modules are not installed", err)
	}
	return p, p.query(ctx, "SHOW server_version", &p.Version)
}

// addSettings appends to a file that belongs to the owner of the cluster.
func addSettings(path string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("configuration of PostgreSQL: %w", err)
	}
	for _, line := range Settings() {
		if _, err := f.WriteString(line + "\n"); err != nil {
			_ = f.Close()
			return fmt.Errorf("configuration of PostgreSQL: %w", err)
		}
	}
	return f.Close()
}

// unprivileged gives the directory to the user postgres where we are root, which initdb and
// postgres refuse; nil means to run them as we are.
func unprivileged(dir string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil //nolint:nilnil // no other user is needed
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres: %w", err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		return nil, fmt.Errorf("directory of PostgreSQL: %w", err)
	}
	// The user must be able to reach it.
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { //nolint:gosec // only a way through, in a temporary directory of ours
		return nil, fmt.Errorf("directory of PostgreSQL: %w", err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// URL is that of a database, as a superuser.
func (p *Postgres) URL(database string) string {
	return "postgres://postgres@" + p.address + "/" + database + "?sslmode=disable"
}

// ID is the process id of the postmaster.
func (p *Postgres) ID() int { return p.process.ID() }

// CreateDatabase makes an empty database.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) error {
	return p.Exec(ctx, "postgres", "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
}

// Exec runs statements in a database.
func (p *Postgres) Exec(ctx context.Context, database, sql string) error {
	conn, err := pgx.Connect(ctx, p.URL(database))
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%.60s: %w", sql, err)
	}
	return nil
}

func (p *Postgres) query(ctx context.Context, sql string, into ...any) error {
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := conn.QueryRow(ctx, sql).Scan(into...); err != nil {
		return fmt.Errorf("%.60s: %w", sql, err)
	}
	return nil
}

// Stop ends the server by a fast shutdown and removes its directory.
func (p *Postgres) Stop() {
	p.process.Stop(syscall.SIGINT, 20*time.Second)
	_ = os.RemoveAll(p.dir)
}
