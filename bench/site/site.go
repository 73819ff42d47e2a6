// Package site is a Bulkhead of the benchmark's own: the programs of one build
// with directories, an engine and pods that nobody else uses.
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

	"github.com/bulkhead-project/bulkhead/bench/account"
	"github.com/bulkhead-project/bulkhead/bench/procs"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// patience bounds every command that names no deadline of its own.
const patience = 3 * time.Minute

// library is beside the programs of a build that forks. One without it is older, and keeps
// a machine ready for the next pod.
const library = "bulkhead-warm.so"

// outputLimit is what is kept of a command's output, in bytes of each stream.
const outputLimit = 1 << 20

// Options say what a site is made of.
type Options struct {
	// Bin is the directory of the programs and the guest bundle.
	Bin string
	// Dir is an existing directory of the site's own with a short path, which
	// everybody may traverse: pods run as users of their own.
	Dir string
	// Clones makes the engine fork no machine: each is a clone.
	Clones bool
	// Account counts what all processes of the site use; nil counts nothing.
	Account *account.Account
}

// Site starts and removes pods one command at a time; Run may be called at once.
type Site struct {
	Bin     string
	Roots   dirs.Roots
	Account *account.Account

	dir      string
	env      []string
	forks    bool   // whether a warm parent is there when all is at rest
	pool     int    // machines that an older build keeps ready instead
	primer   string // the manifest of a pod of no other use
	pods     map[string]bool
	restless int // how often in a row they have not come to rest
}

// Open makes the directories of a site; its engine starts with the first
// command.
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

// Result is what a command did.
type Result struct {
	Took        time.Duration // from before its start until it was waited for
	Out, Stderr string
}

// Run runs `bulkhead args…` to its end.
func (s *Site) Run(ctx context.Context, args ...string) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.Bin, "bulkhead"), args...)
	cmd.Env, cmd.Dir = s.env, "/"
	return Time(cmd, s.Account)
}

// Time runs a command to its end, in an account and out of reach of the terminal's Ctrl-C.
func Time(cmd *exec.Cmd, in *account.Account) (Result, error) {
	// Not pipes: whoever else holds one open would count as a part of the command.
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

// Engine is the process of the site's engine.
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

// engines are the names of the engine's program: an older build that is compared with has the second.
var engines = []string{"bulkhead-engine", "bulkhead-supervisor"}

func (s *Site) isEngine(p procs.Process) bool {
	args := procs.Args(p.PID)
	return !p.Zombie && len(args) == 1 && slices.Contains(engines, filepath.Base(args[0])) &&
		procs.Getenv(p.PID, "BULKHEAD_STATE") == s.Roots.State
}

// JSON runs a command with -o json and decodes what it prints.
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

// Version is what the programs say of themselves.
func (s *Site) Version(ctx context.Context) (api.Version, error) {
	var v api.Version
	return v, s.JSON(ctx, &v, "version")
}
