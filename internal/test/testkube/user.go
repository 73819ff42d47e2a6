package testkube

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// User runs kubectl's commands on a cluster, as an administrator. It is safe for concurrent use.
type User struct {
	c   *Cluster
	bin string
}

// User returns the cluster's administrator.
func (c *Cluster) User(t testing.TB) User {
	t.Helper()
	bin, _ := c.Kubectl(t)
	return User{c: c, bin: bin}
}

// Env returns the variables for the user's commands, with kubectl's path and configuration.
func (u User) Env() []string {
	return []string{"PATH=" + u.bin + ":" + os.Getenv("PATH"), "HOME=" + u.c.Dir, "KUBECONFIG=" + u.c.Kubeconfig(), "TERM=xterm"}
}

// Kubectl returns a command that ends with ctx.
func (u User) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(u.bin, "kubectl"), args...)
	cmd.Env = u.Env()
	return cmd
}

// Typed runs a command that must succeed, with that input (empty for none), and returns its output.
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
