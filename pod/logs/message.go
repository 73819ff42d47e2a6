package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/config"
)

// The kubelet's limits for a termination message.
const (
	maxMessage      = 4096 // bytes of the message file
	maxMessageLog   = 2048 // bytes of the log, if there is no message
	maxMessageLines = 80   // lines of the log
	// maxTail is how many bytes of a log are read for them: enough for that many short lines with time stamps, or the
	// end of a long one.
	maxTail = 64 << 10
)

// MakeMessage creates the message file of a run, for the container to write. It removes the file of the last run but
// one, which no longer appears in the status.
func MakeMessage(o *config.Options, container string, restarts int32) error {
	if o.MessageDir == "" {
		return nil
	}
	path := config.MessageFile(o, container, restarts)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, nil, 0o666)
	}
	if err == nil {
		err = os.Chmod(path, 0o666) // any user of the container may write
	}
	if err != nil {
		return fmt.Errorf("create the termination message's file: %w", err)
	}
	if err := os.Remove(config.MessageFile(o, container, restarts-2)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove an old termination message: %w", err)
	}
	return nil
}

// TerminationMessage returns the termination message of a container's run that has ended: the content of its message
// file. If that is empty, the run has failed, and the policy asks for it, TerminationMessage returns the end of the
// log.
func TerminationMessage(o *config.Options, spec *corev1.Container, restarts int32, failed bool) string {
	var text string
	if o.MessageDir != "" {
		text = tail(config.MessageFile(o, spec.Name, restarts), maxMessage)
	}
	if text == "" && spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError &&
		failed && o.LogDir != "" {
		log := filepath.Join(o.LogDir, config.LogPath(spec.Name, restarts))
		text = logTail(tail(Older(log), maxTail) + tail(log, maxTail))
	}
	return strings.ToValidUTF8(text, "?")
}

// tail returns the end of a file. It returns no error but an empty text for an unreadable file, because the pod's end
// must be reported anyway.
func tail(path string, limit int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	data, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-limit), limit))
	if err != nil {
		return ""
	}
	return string(data)
}

// logTail returns the end of a container's output from a log in the CRI's format. There, a time, a stream and a tag
// precede the text of each line.
func logTail(log string) string {
	var lines [][]byte
	for line := range bytes.Lines([]byte(log)) {
		parts := bytes.SplitN(line, []byte{' '}, 4)
		if len(parts) != 4 || string(parts[1]) != "stdout" && string(parts[1]) != "stderr" {
			continue // the rest of a line that was cut off
		}
		text := parts[3]
		if bytes.HasPrefix(parts[2], []byte{'P'}) {
			text = bytes.TrimSuffix(text, []byte{'\n'})
		}
		lines = append(lines, text)
	}
	text := bytes.Join(lines[max(0, len(lines)-maxMessageLines):], nil)
	return string(text[max(0, len(text)-maxMessageLog):])
}
