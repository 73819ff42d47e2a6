package network

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// holdScript keeps the namespaces, and says so on stdout: only then may pasta
// look for them. From then on it runs what it is asked to on stdin: lines of a
// token and commands of ip(8), separated by semicolons. Each is answered on
// descriptor 3 by the token, the exit status and what ip said.
//
// Nobody else can change the namespace: a process of an ordinary user that joins
// it loses its capabilities when it executes another program.
const holdScript = `echo there && exec >&3 2>&3 3>&- || exit
set -f
while read -r token commands; do
	[ -n "$token" ] || continue
	said=$(echo "$commands" | tr ';' '\n' | ip -force -batch - 2>&1)
	echo "$token" $? $said
done`

// startHolder makes the namespaces and the process that keeps them. The process
// outlives this one, and is not waited for: while this process lives, a holder
// that is killed stays a zombie until reap collects it. dir keeps the FIFOs by
// which it is asked.
func startHolder(ctx context.Context, dir string) (id procid.ID, err error) {
	ask, err := makeFIFO(askPath(dir))
	if err != nil {
		return id, err
	}
	defer ask.Close()
	answer, err := makeFIFO(answerPath(dir))
	if err != nil {
		return id, err
	}
	defer answer.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return id, err
	}
	defer r.Close()
	args := namespaceArgs("/bin/sh", "-c", holdScript)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = "/", environment(dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = ask, w, w, []*os.File{answer}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return id, fmt.Errorf("make a user and network namespace: %w", err)
	}
	defer func() { err = errors.Join(err, cmd.Process.Release()) }()
	if id, err = procid.Of(cmd.Process.Pid); err != nil {
		return id, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := r.SetReadDeadline(deadline); err != nil {
			return id, err
		}
	}
	if err := said(r, "there\n"); err != nil {
		return id, fmt.Errorf("make a user and network namespace: %w", err)
	}
	return id, nil
}

// said reads what the holder has to say first. What it says instead is its
// complaint.
func said(r io.Reader, want string) error {
	got := make([]byte, len(want))
	_, err := io.ReadFull(r, got)
	if err == nil && string(got) == want {
		return nil
	}
	rest, _ := io.ReadAll(io.LimitReader(r, 4096)) // to its end, which is near
	return errors.Join(fmt.Errorf("its holder said %q", lastLine(append(bytes.TrimRight(got, "\x00"), rest...))), err)
}

func askPath(dir string) string    { return filepath.Join(dir, "netns.ask") }
func answerPath(dir string) string { return filepath.Join(dir, "netns.answer") }

// makeFIFO makes a FIFO anew, open in both directions, so that it never ends.
func makeFIFO(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

// askHolder has the holder of dir's namespace run commands of ip(8) in it, also
// those after one that fails. One caller at a time: the namespace is locked.
func askHolder(ctx context.Context, dir string, commands ...string) error {
	ask, err := os.OpenFile(askPath(dir), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer ask.Close()
	answer, err := os.OpenFile(answerPath(dir), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer answer.Close()
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	if err := errors.Join(ask.SetDeadline(deadline), answer.SetDeadline(deadline)); err != nil {
		return err
	}
	// The empty line ends what an engine that was killed had begun to ask.
	token := rand.Text()
	if _, err := fmt.Fprintf(ask, "\n%s %s\n", token, strings.Join(commands, ";")); err != nil {
		return fmt.Errorf("ask the namespace's holder: %w", err)
	}
	lines := bufio.NewScanner(answer)
	for lines.Scan() {
		got, rest, _ := strings.Cut(lines.Text(), " ")
		if got != token {
			continue // to an engine that was killed
		}
		if status, said, _ := strings.Cut(rest, " "); status != "0" {
			return fmt.Errorf("ip: status %s: %s", status, lastLine([]byte(said)))
		}
		return nil
	}
	return fmt.Errorf("wait for the namespace's holder: %w", lines.Err())
}
