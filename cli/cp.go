package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/cli/tree"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

func (a *app) cpCmd() *cobra.Command {
	var container string
	cmd := &cobra.Command{
		Use:   "cp SOURCE TARGET",
		Short: "Copy files and directories to and from a container",
		Long: `Copy files and directories to and from a container: POD:PATH is a path in one, every
other one is on this machine, and - is a tar stream on stdin or stdout. The image needs
no program for it.

Into a directory that is there SOURCE comes under its own name, else it becomes TARGET;
DIR/. means what is in DIR. Links, permissions and times are kept. What is copied to a
container belongs to the user that it runs as. What comes from one is not trusted:
links that lead out of the copy, devices and set-user-id are left out (- has them all).`,
		Example: `  bulkhead cp web:/etc/nginx/nginx.conf .
  bulkhead cp -c app site/. web:/usr/share/nginx/html
  bulkhead cp web:/var/log - | tar tv
  tar c data | bulkhead cp - web:/srv`,
		Args: exactly("SOURCE", "TARGET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to := parsePlace(args[0]), parsePlace(args[1])
			ctx, stop := catch(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			var err error
			switch {
			case from.pod != "" && to.pod != "":
				return errors.New("one of the two has to be on this machine: copy from one pod to - and from - to the other")
			case from.pod == "" && to.pod == "":
				return fmt.Errorf("neither %q nor %q names a pod: write POD:PATH", args[0], args[1])
			case from.path == "" || to.path == "":
				return errors.New("a path is missing: write POD:PATH")
			case from.pod != "":
				err = a.copyOut(ctx, from, to.path, container)
			default:
				err = a.copyIn(ctx, from.path, to, container)
			}
			if s := (signalError{}); errors.As(context.Cause(ctx), &s) {
				return ExitError(128 + int(s.Signal))
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&container, "container", "c", "", "container (default: the pod's first)")
	return cmd
}

// place is an argument of cp; pod is empty for this machine.
type place struct{ pod, path string }

// parsePlace takes what begins with . or / for a path of this machine, as kubectl
// and podman do.
func parsePlace(arg string) place {
	pod, path, isPod := strings.Cut(arg, ":")
	if !isPod || pod == "" || strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, ".") {
		return place{path: arg}
	}
	return place{pod, path}
}

// standard is the argument for stdin and stdout.
const standard = "-"

// openCopy dials the stream of a copy, which run carries.
func (a *app) openCopy(ctx context.Context, pod string, req api.CopyRequest) (run func(stream.Stdio) error, err error) {
	var s api.Stream
	if err := a.client.Call(ctx, "POST", podPath(pod, "copy"), nil, req, &s); err != nil {
		return nil, err
	}
	conn, err := stream.Dial(ctx, s.Address, s.Token)
	if err != nil {
		return nil, refusal(err)
	}
	return func(std stream.Stdio) error {
		std.Stderr = &noteWriter{w: a.err}
		_, err := std.Run(ctx, conn)
		return err
	}, nil
}

// copyOut copies a container's file or directory to target.
func (a *app) copyOut(ctx context.Context, from place, target, container string) error {
	if target == standard && isTerminal(a.out) {
		return errors.New("- is a tar stream, and no sight for a terminal: redirect it")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run, err := a.openCopy(ctx, from.pod, api.CopyRequest{Container: container, Path: from.path})
	if err != nil {
		return err
	}
	if target == standard {
		return run(stream.Stdio{Stdout: a.out})
	}
	in, out := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := tree.Unpack(in, target, agentv1.TreeBase(from.path), a.note)
		in.CloseWithError(errors.Join(err, io.ErrClosedPipe))
		if err != nil {
			cancel() // the pod may never end what nobody reads
		}
		unpacked <- err
	}()
	err = run(stream.Stdio{Stdout: out})
	// Only a stream that has ended well is whole.
	out.CloseWithError(err)
	if failed := <-unpacked; failed != nil && !errors.Is(failed, err) {
		return failed
	}
	return err
}

// copyIn copies source to a container.
func (a *app) copyIn(ctx context.Context, source string, to place, container string) error {
	req := api.CopyRequest{Container: container, Path: to.path, In: true, Into: source == standard}
	if source == standard && isTerminal(a.in) {
		return errors.New("- is a tar stream on stdin, which is a terminal: redirect it")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run, err := a.openCopy(ctx, to.pod, req)
	if err != nil {
		return err
	}
	named := func(err error) error {
		if err == nil || ctx.Err() != nil {
			return err
		}
		if why, found := strings.CutPrefix(err.Error(), "agent unpack: "); found {
			err = errors.New(why)
		}
		return fmt.Errorf("copy to %s:%s: %w", to.pod, to.path, err)
	}
	if source == standard {
		return named(run(stream.Stdio{Stdin: a.in}))
	}
	in, out := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := tree.Pack(out, source, a.note)
		if err != nil {
			cancel() // a stream that is not whole is not to be taken for one
		}
		out.CloseWithError(err)
		packed <- err
	}()
	err = named(run(stream.Stdio{Stdin: in}))
	in.CloseWithError(io.ErrClosedPipe)
	if failed := <-packed; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return failed
	}
	return err
}

func (a *app) note(text string) { fmt.Fprintln(a.err, "bulkhead: "+plain(text)) }

// noteWriter prints the lines that a pod's shim tells.
type noteWriter struct {
	w    io.Writer
	line []byte
}

func (n *noteWriter) Write(p []byte) (int, error) {
	n.line = append(n.line, p...)
	for {
		line, rest, whole := bytes.Cut(n.line, []byte{'\n'})
		if !whole {
			break
		}
		fmt.Fprintln(n.w, "bulkhead: "+printable(string(line)))
		n.line = rest
	}
	if len(n.line) > maxPartial {
		n.line = nil
	}
	return len(p), nil
}
