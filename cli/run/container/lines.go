package container

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// maxLines bounds a file of variables or labels, in bytes.
const maxLines = 1 << 20

// linesOf reads the file that flag names. It skips empty lines and lines that begin with #, and removes leading
// spaces.
func linesOf(flag, name string) (lines []string, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxLines+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if len(text) > maxLines {
		return nil, fmt.Errorf("%s %s: the file is larger than %d bytes", flag, name, maxLines)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimLeft(strings.TrimRight(line, "\r\n"), " \t")
		if line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines, nil
}
