package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/bulkhead-project/bulkhead/internal/printable"
	"github.com/bulkhead-project/bulkhead/internal/tail"
)

// programs runs plugins. Unlike the library, it kills a plugin's children with it: otherwise a plugin that hangs in a
// child would never end.
type programs struct{ *version.PluginDecoder }

var _ invoke.Exec = programs{}

// reapDelay is the longest wait for the output of a killed plugin.
const reapDelay = time.Second

// ExecPlugin runs one plugin.
func (programs) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, bytes.NewReader(stdin), &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = reapDelay
	err := cmd.Run()
	if err == nil {
		return stdout.Bytes(), nil
	}
	name := filepath.Base(path)
	var said types.Error
	switch {
	case json.Unmarshal(stdout.Bytes(), &said) == nil && (said.Code != 0 || said.Msg != ""):
		return nil, fmt.Errorf("plugin %s: %w", name, &said)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("plugin %s was killed: %w", name, ctx.Err())
	}
	return nil, fmt.Errorf("plugin %s: %w: %s", name, err, printable.Text(tail.Line(stderr.String())))
}

// FindInPath finds a plugin.
func (programs) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}
