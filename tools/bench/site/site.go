// Package site is a private Bulkhead for the benchmark: the programs of one build with their own directories,
// engine and pods.
package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/tools/bench/account"
	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
)

// patience bounds every command without another deadline.
const patience = 3 * time.Minute

// library exists beside the programs of a build that forks. A build without it is older, and keeps a VM ready for
// the next pod.
const library = "bulkhead-warm.so"

// outputLimit is the number of bytes that are kept of each output stream of a command.
const outputLimit = 1 << 20

// Options configure a site.
type Options struct {
	// Bin is the directory of the programs and the guest bundle.
	Bin string
	// Dir is an existing directory of the site with a short path. All users must be able to traverse it, because
	// pods run as their own users.
	Dir string
	// Clones makes the engine fork no VM: each is a clone.
	Clones bool
	// Account counts the processor time of all processes of the site. nil counts nothing.
	Account *account.Account
}

// Site starts and removes pods, one command at a time. Run is safe for concurrent use.
type Site struct {
	Bin     string
	Roots   dirs.Roots
	Account *account.Account

	dir      string
	env      []string
	forks    bool   // a warm parent exists when all is at rest
	pool     int    // VMs that an older build keeps ready instead
	primer   string // the manifest of a pod for no other use
	pods     map[string]bool
	restless int // how often in a row the processes have not come to rest
}

// Open creates the directories of a site. Its engine starts with the first command.
func Open(o Options) (*Site, error) {
	s := &Site{
		Bin: o.Bin, Account: o.Account, dir: o.Dir, pods: map[string]bool{},
		Roots: dirs.Roots{Data: filepath.Join(o.Dir, "d"), State: filepath.Join(o.Dir, "s")},
	}
	conf := "[[registry]]\nlocation = \"127.0.0.1\"\ninsecure = true\n"
	if err := os.WriteFile(filepath.Join(o.Dir, "registries.conf"), []byte(conf), 0o600); err != nil {
		return nil, fmt.Errorf("open a site: %w", err)
	}
	s.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + o.Dir, "XDG_CONFIG_HOME=" + o.Dir, "TMPDIR=" + o.Dir,
		"REGISTRY_AUTH_FILE=" + filepath.Join(o.Dir, "auth.json"),
		"CONTAINERS_REGISTRIES_CONF=" + filepath.Join(o.Dir, "registries.conf"),
		"BULKHEAD_DATA=" + s.Roots.Data, "BULKHEAD_STATE=" + s.Roots.State, "BULKHEAD_IDLE=2h",
	}
	_, err := os.Stat(filepath.Join(o.Bin, library))
	switch {
	case o.Clones:
		s.env = append(s.env, "BULKHEAD_WARM=off")
	case err == nil:
		s.forks = true
	default:
		s.pool = 1
	}
	return s, nil
}

// Environ returns the variables that select the site's directories and engine.
func (s *Site) Environ() []string { return s.env }

// Result is the result of a command.
type Result struct {
	Took        time.Duration // from before its start until it was reaped
	Out, Stderr string
}

// Run runs `bulkhead args…` until it exits.
func (s *Site) Run(ctx context.Context, args ...string) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.Bin, "bulkhead"), args...)
	cmd.Env, cmd.Dir = s.env, "/"
	return Time(cmd, s.Account)
}

// Time runs a command until it exits, in an account and out of reach of the terminal's Ctrl-C.
func Time(cmd *exec.Cmd, in *account.Account) (Result, error) {
	// Files, not pipes: a process that holds a pipe open would count as a part of the command.
	var files [2]*os.File
	for i := range files {
		fd, err := unix.MemfdCreate("bench-output", unix.MFD_CLOEXEC)
		if err != nil {
			return Result{}, fmt.Errorf("keep a command's output: %w", err)
		}
		files[i] = os.NewFile(uintptr(fd), "output")
		defer files[i].Close()
	}
	cmd.Stdout, cmd.Stderr = files[0], files[1]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var began time.Time
	err := in.Start(cmd, func(cmd *exec.Cmd) error {
		began = time.Now()
		return cmd.Start()
	})
	if err == nil {
		err = cmd.Wait()
	}
	r := Result{Took: time.Since(began)}
	var texts [2]string
	for i, f := range files {
		text, readErr := io.ReadAll(io.NewSectionReader(f, 0, outputLimit))
		texts[i], err = string(text), errors.Join(err, readErr)
	}
	r.Out, r.Stderr = texts[0], texts[1]
	if err != nil {
		said := strings.Join(strings.Fields(r.Stderr), " ")
		return r, fmt.Errorf("%s: %w: %s", strings.Join(append([]string{filepath.Base(cmd.Path)}, cmd.Args[1:]...), " "), err, said)
	}
	return r, nil
}

// Engine returns the process id of the site's engine.
func (s *Site) Engine() (int, error) {
	all, err := procs.Below(procs.Root())
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		if s.isEngine(p) {
			return p.PID, nil
		}
	}
	return 0, errors.New("the site has no engine")
}

// engines has the names of the engine's program. The second is that of an older build.
var engines = []string{"bulkhead-engine", "bulkhead-supervisor"}

func (s *Site) isEngine(p procs.Process) bool {
	args := procs.Args(p.PID)
	return !p.Zombie && len(args) == 1 && slices.Contains(engines, filepath.Base(args[0])) &&
		procs.Getenv(p.PID, "BULKHEAD_STATE") == s.Roots.State
}

// JSON runs a command with -o json and decodes its output.
func (s *Site) JSON(ctx context.Context, out any, args ...string) error {
	r, err := s.Run(ctx, append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(r.Out), out); err != nil {
		return fmt.Errorf("bulkhead %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// Version returns the versions that the programs report.
func (s *Site) Version(ctx context.Context) (api.Version, error) {
	var v api.Version
	return v, s.JSON(ctx, &v, "version")
}
