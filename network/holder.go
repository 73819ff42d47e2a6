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

// there is the first line on the holder's standard error.
const there = "bulkhead: there"

// holdScript holds the namespaces, and reports that it runs. Then it executes the requests on its standard input: lines
// of a token and commands of ip(8), separated by semicolons. It answers each on its standard output by the token, the
// exit status and ip's output.
//
// A subshell writes the first line: a redirection would move the holder's own files meanwhile.
//
// No other process can change the namespace: a process of an ordinary user that joins it loses its capabilities when it
// executes another program.
const holdScript = `(echo ` + "'" + there + "'" + ` >&2); exec 2>/dev/null
set -f
while read -r token commands; do
	[ -n "$token" ] || continue
	said=$(echo "$commands" | tr ';' '\n' | ip -force -batch - 2>&1)
	echo "$token" $? $said
done`

// awaitLine reads lines until want. If the input ends before, the last line is the error.
func awaitLine(r io.Reader, want string) error {
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

// The holder's descriptors for requests and answers.
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

// askHolder makes the namespace's holder run commands of ip(8), including those after one that fails. The caller holds
// the namespace's lock.
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
	// The empty line ends the unfinished request of an engine that was killed.
	token := rand.Text()
	if _, err := fmt.Fprintf(ask, "\n%s %s\n", token, strings.Join(commands, ";")); err != nil {
		return fmt.Errorf("ask the namespace's holder: %w", err)
	}
	lines := bufio.NewScanner(answer)
	for lines.Scan() {
		got, rest, _ := strings.Cut(lines.Text(), " ")
		if got != token {
			continue // an answer to an engine that was killed
		}
		if status, said, _ := strings.Cut(rest, " "); status != "0" {
			return fmt.Errorf("ip: status %s: %s", status, lastLine([]byte(said)))
		}
		return nil
	}
	return fmt.Errorf("wait for the namespace's holder: %w", lines.Err())
}
