package runtimes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bulkhead-project/bulkhead/tools/bench/account"
	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
	"github.com/bulkhead-project/bulkhead/tools/bench/site"
)

// docker is the path of Debian's client. A client of another origin may lie in a directory before it.
const docker = "/usr/bin/docker"

// Docker is a dockerd in a directory of the benchmark, without bridges.
type Docker struct {
	account *account.Account
	env     []string
	cmd     *exec.Cmd
	died    chan error
}

// OpenDocker starts a dockerd with one more runtime, named bulkhead, which gets the variables. dir must have a short path.
func OpenDocker(ctx context.Context, dir, runtime string, env []string, counted *account.Account) (*Docker, error) {
	if _, err := os.Stat(docker); err != nil {
		return nil, errors.New("docker is not installed")
	}
	settings := map[string]any{
		"data-root": dir + "/data", "exec-root": dir + "/exec", "pidfile": dir + "/pid", "hosts": []string{"unix://" + dir + "/s"},
		"bridge": "none", "iptables": false, "storage-driver": "overlay2",
		"runtimes": map[string]any{"bulkhead": map[string]string{"path": runtime}},
	}
	if counted != nil {
		settings["cgroup-parent"] = counted.Path
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "daemon.json"), text, 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d := &Docker{
		account: counted, died: make(chan error, 1),
		env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "DOCKER_HOST=unix://" + dir + "/s"},
	}
	d.cmd = exec.Command("dockerd", "--config-file", filepath.Join(dir, "daemon.json"))
	d.cmd.Env, d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr = append(os.Environ(), env...), "/", log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := counted.Start(d.cmd, (*exec.Cmd).Start); err != nil {
		return nil, fmt.Errorf("start dockerd: %w", err)
	}
	go func() { d.died <- d.cmd.Wait() }()
	ready, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		_, err := d.Run(ready, "version")
		if err == nil {
			return d, nil
		}
		if waitErr := procs.Wait(ready, 50*time.Millisecond); waitErr != nil { // nothing reports it
			return nil, errors.Join(fmt.Errorf("start dockerd: %w", err), d.Close(context.WithoutCancel(ctx)))
		}
	}
}

// Run runs a command of docker.
func (d *Docker) Run(ctx context.Context, args ...string) (site.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, docker, args...)
	cmd.Env, cmd.Dir = d.env, "/"
	return site.Time(cmd, d.account)
}

// Close ends dockerd.
func (d *Docker) Close(ctx context.Context) error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-d.died:
		return err
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("dockerd does not end: %w", ctx.Err()), d.cmd.Process.Kill())
	}
}
