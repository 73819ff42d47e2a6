package testkube

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// User types kubectl's commands at a cluster, as an administrator. Its methods may be called at once.
type User struct {
	c   *Cluster
	bin string
}

// User is the cluster's administrator.
func (c *Cluster) User(t testing.TB) User {
	t.Helper()
	bin, _ := c.Kubectl(t)
	return User{c: c, bin: bin}
}

// Env are the variables of what the user runs, kubectl's way to the cluster among them.
func (u User) Env() []string {
	return []string{"PATH=" + u.bin + ":" + os.Getenv("PATH"), "HOME=" + u.c.Dir, "KUBECONFIG=" + u.c.Kubeconfig(), "TERM=xterm"}
}

// Kubectl is a command, which ends with ctx.
func (u User) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(u.bin, "kubectl"), args...)
	cmd.Env = u.Env()
	return cmd
}

// Typed runs a command, which is to succeed, with that input, empty for none, and returns what it says.
func (u User) Typed(ctx context.Context, t testing.TB, in string, args ...string) string {
	t.Helper()
	cmd := u.Kubectl(ctx, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	if in != "" {
		cmd.Stdin = strings.NewReader(in)
	}
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("kubectl %s: %v: %s%s", strings.Join(args, " "), err, out, &errs)
	}
	return string(out)
}
