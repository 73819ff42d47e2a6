package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/bulkhead-project/bulkhead/tools/bench/account"
	"github.com/bulkhead-project/bulkhead/tools/bench/kubelet"
	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
)

// Server is `bulkhead cri` on a site's directories, with its own pods.
type Server struct {
	*kubelet.Kubelet
	Account *account.Account

	site *Site
	cmd  *exec.Cmd
	died chan struct{}
}

// Serve stops the site's engine and serves the CRI instead, for pods on CNI's network. Close closes it.
func (s *Site) Serve(ctx context.Context, cniConf, cniBin string) (v *Server, err error) {
	if pid, err := s.Engine(); err == nil {
		if err := errors.Join(syscall.Kill(pid, syscall.SIGTERM), gone(ctx, pid)); err != nil {
			return nil, fmt.Errorf("serve the CRI: %w", err)
		}
	}
	logs, socket, config := filepath.Join(s.dir, "logs"), filepath.Join(s.dir, "cri.sock"), filepath.Join(s.dir, "config.toml")
	log, err := os.Create(filepath.Join(s.dir, "cri.log"))
	if err != nil {
		return nil, fmt.Errorf("serve the CRI: %w", err)
	}
	defer log.Close()
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		return nil, fmt.Errorf("serve the CRI: %w", err)
	}
	v = &Server{Account: s.Account, site: s, died: make(chan struct{})}
	v.cmd = exec.Command(filepath.Join(s.Bin, "bulkhead"), "cri", "--config", config, "--listen", "unix://"+socket,
		"--kubelet-root", filepath.Join(s.dir, "kubelet"), "--log-dir", logs, "--cni-conf-dir", cniConf, "--cni-bin-dir", cniBin)
	v.cmd.Env, v.cmd.Dir, v.cmd.Stdout, v.cmd.Stderr = s.env, "/", log, log
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.Account.Start(v.cmd, (*exec.Cmd).Start); err != nil {
		return nil, fmt.Errorf("serve the CRI: %w", err)
	}
	go func() {
		defer close(v.died)
		_ = v.cmd.Wait() // it is being stopped
	}()
	o := kubelet.Options{Socket: socket, Logs: logs}
	if s.Account != nil {
		o.Cgroup = s.Account.Path
	}
	if v.Kubelet, err = kubelet.Dial(ctx, o, v.died); err != nil {
		said, _ := os.ReadFile(log.Name())
		return nil, errors.Join(fmt.Errorf("serve the CRI: %w: %s", err, said), v.Close(context.WithoutCancel(ctx)))
	}
	return v, nil
}

// AwaitIdle waits until all processes of the benchmark are at rest and a warm parent exists. If there is none, it runs
// a pod of image.
func (v *Server) AwaitIdle(ctx context.Context, image string) error {
	ctx, cancel := context.WithTimeout(ctx, restPatience)
	defer cancel()
	all, err := procs.Below(procs.Root())
	if err != nil {
		return err
	}
	if v.site.forks && v.warm(all) != nil {
		p, err := v.Start(ctx, "primer", image, "true")
		if err = errors.Join(err, v.End(ctx, p)); err != nil {
			return fmt.Errorf("come to rest: %w", err)
		}
	}
	return procs.Rest(ctx, v.warm)
}

// warm returns an error if there is no warm parent.
func (v *Server) warm(all []procs.Process) error {
	f := find(all, func(p procs.Process) bool { return p.PID == v.cmd.Process.Pid }, procs.Args,
		func(pid int) bool { return procs.HasThread(pid, WarmThread) })
	if v.site.forks && len(f.parents) == 0 {
		return errors.New("there is no warm parent")
	}
	return nil
}

// Close removes the server's pods and stops it.
func (v *Server) Close(ctx context.Context) (err error) {
	if v.Kubelet != nil {
		err = v.Kubelet.Close(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, goneWait)
	defer cancel()
	_ = v.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-v.died:
	case <-ctx.Done():
		_ = v.cmd.Process.Kill()
		err = errors.Join(err, fmt.Errorf("the CRI's server does not exit: %w", ctx.Err()))
	}
	return err
}
