package network

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// there is the holder's first line, on its standard error.
const there = "bulkhead: there"

// holdScript keeps the namespaces, and says so. From then on it runs what it is asked to
// on its standard input: lines of a token and commands of ip(8), separated by semicolons.
// Its standard output answers each by the token, the exit status and what ip said.
//
// A shell of its own says it: a redirection would move the holder's own files meanwhile.
//
// Nobody else can change the namespace: a process of an ordinary user that joins
// it loses its capabilities when it executes another program.
const holdScript = `(echo ` + "'" + there + "'" + ` >&2); exec 2>/dev/null
set -f
while read -r token commands; do
	[ -n "$token" ] || continue
	said=$(echo "$commands" | tr ';' '\n' | ip -force -batch - 2>&1)
	echo "$token" $? $said
done`

// said reads lines until want. Where their end comes first, the last one is a complaint.
func said(r io.Reader, want string) error {
	var got strings.Builder
	lines := bufio.NewScanner(io.TeeReader(io.LimitReader(r, 64<<10), &got))
	for lines.Scan() {
		if lines.Text() == want {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", lastLine([]byte(got.String())), err)
	}
	return errors.New(lastLine([]byte(got.String())))
}

// Where the holder reads and writes.
const (
	askFile    = 0
	answerFile = 1
)

// openHolder opens one of the holder's files.
func openHolder(holder procid.ID, file int) (*os.File, error) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", holder.PID, file), os.O_RDWR, 0)
	if err == nil && !holder.Alive() {
		err = errors.Join(procid.ErrGone, f.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("ask the namespace's holder: %w", err)
	}
	return f, nil
}

// askHolder has the namespace's holder run commands of ip(8) in it, also those after
// one that fails. One caller at a time: the namespace is locked.
func askHolder(ctx context.Context, holder procid.ID, commands ...string) error {
	ask, err := openHolder(holder, askFile)
	if err != nil {
		return err
	}
	defer ask.Close()
	answer, err := openHolder(holder, answerFile)
	if err != nil {
		return err
	}
	defer answer.Close()
	ctx, cancel := attaching(ctx)
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
