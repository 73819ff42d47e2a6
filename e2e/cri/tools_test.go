package cri

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// crictl is the CRI's own client, configured for a node.
type crictl struct{ program, config string }

func newCrictl(t *testing.T, n *node) crictl {
	t.Helper()
	text := "runtime-endpoint: unix://" + n.o.Socket + "\ntimeout: 300\n"
	return crictl{testkube.Program(t, "crictl"), write(t, t.TempDir(), "crictl.yaml", text)}
}

func (c crictl) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Env = append(os.Environ(), "CRI_CONFIG_FILE="+c.config)
	return cmd
}

// run returns the output of a command on both streams.
func (c crictl) run(ctx context.Context, stdin string, args ...string) (stdout, stderr string, err error) {
	cmd := c.command(ctx, args...)
	var out, errs strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// id returns the last word of a command's output, the ID of a created object.
func (c crictl) id(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, err := c.run(ctx, "", args...)
	words := strings.Fields(stdout)
	if err != nil || len(words) == 0 {
		t.Fatalf("crictl %s: %v: %s", strings.Join(args, " "), err, stderr)
	}
	return words[len(words)-1]
}

// write writes a file and returns its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// document returns a message in crictl's format.
func document(t *testing.T, m proto.Message) string {
	t.Helper()
	text, err := protojson.MarshalOptions{UseProtoNames: true, UseEnumNumbers: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
