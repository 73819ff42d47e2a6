package main

import (
	"fmt"
	"strings"
)

// excuse names the faults of one kind in one line of a file. It quotes the line instead of its number, because
// lines before it may come and go.
type excuse struct{ path, fault, line string }

// parseExcused parses lines of four parts: "path | fault | the source's line | reason". The reason says why no test
// can or should notice the fault. Lines that begin with # are comments.
func parseExcused(text string) ([]excuse, error) {
	var all []excuse
	for number, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		// The source's line may contain the separator.
		first, rest, _ := strings.Cut(line, " | ")
		second, rest, ok := strings.Cut(rest, " | ")
		last := strings.LastIndex(rest, " | ")
		if !ok || last < 0 || strings.TrimSpace(rest[last+3:]) == "" {
			return nil, fmt.Errorf("excused.txt:%d: must be path | fault | line | reason", number+1)
		}
		all = append(all, excuse{path: first, fault: second, line: strings.TrimSpace(rest[:last])})
	}
	return all, nil
}
