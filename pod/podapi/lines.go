package podapi

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

var (
	atLine = regexp.MustCompile(`line (\d+): *`)
	// oneShort matches errors with lines that the parser counts from 0.
	oneShort = regexp.MustCompile(`did not find expected (key|node content|',' or|'-' indicator|<)`)
	// likeJSON matches the beginning of JSON; YAML rarely starts like that.
	likeJSON      = regexp.MustCompile(`^\s*\{\s*["}]`)
	byteOrderMark = []byte("\ufeff")
)

// part is one document of a file. before is the number of lines before it.
type part struct {
	text   []byte
	before int
}

// split cuts data at the document separators, into at most maxDocuments parts and the rest.
func split(data []byte) []part {
	var parts []part
	start, at, before, lines := 0, 0, 0, 0
	for line := range bytes.Lines(data) {
		if len(line) >= 3 && (string(line[:3]) == "---" || string(line[:3]) == "...") &&
			(len(line) == 3 || bytes.IndexByte([]byte(" \t\r\n"), line[3]) >= 0) {
			parts = append(parts, part{data[start:at], before})
			if len(parts) > maxDocuments {
				return parts
			}
			start, before = at+3, lines
		}
		at += len(line)
		lines++
	}
	return append(parts, part{data[start:], before})
}

// yamlError reports each line of a YAML parser's error separately.
func (d *decoder) yamlError(err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:")
	for part := range strings.Lines(text) {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		line := 0
		if match := atLine.FindStringSubmatchIndex(part); match != nil {
			line, _ = strconv.Atoi(part[match[2]:match[3]])
			part = part[:match[0]] + part[match[1]:]
			if oneShort.MatchString(part) {
				line++
			}
		}
		part = strings.TrimPrefix(strings.TrimPrefix(part, "error converting YAML to JSON: "), "yaml: ")
		d.add(line, "", errSyntax, "not YAML: "+part)
	}
}

// afterEnd reports text after a document's end: a parser's error there, or another document.
func (d *decoder) afterEnd(err error, more *yamlv3.Node) {
	const begun = "did not find expected <document start>"
	if err != nil && !strings.Contains(err.Error(), begun) {
		d.yamlError(err)
		return
	}
	line := more.Line
	if match := atLine.FindStringSubmatch(fmt.Sprint(err)); match != nil {
		line, _ = strconv.Atoi(match[1])
		line++ // the parser counts from 0 here
	}
	d.add(line, "", errSyntax, "not YAML: there is text after the end of the document (begin the next one with a line \"---\")")
}

// lineOf returns the line of the field at path, or of its nearest existing parent.
func lineOf(node *yamlv3.Node, path string) int {
	line := node.Line
	for path != "" {
		step, rest, _ := strings.Cut(path, ".")
		name, index, indexed := strings.Cut(step, "[")
		next := child(node, name)
		if next == nil {
			return line
		}
		node, line = next[1], next[0].Line
		if indexed {
			at, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
			if err != nil || node.Kind != yamlv3.SequenceNode || at >= len(node.Content) {
				return line
			}
			node = node.Content[at]
			line = node.Line
		}
		path = rest
	}
	return line
}

// nodeAt returns the node of the field at path, nil if it does not exist.
func nodeAt(node *yamlv3.Node, path string) *yamlv3.Node {
	for path != "" && node != nil {
		step, rest, _ := strings.Cut(path, ".")
		name, index, indexed := strings.Cut(step, "[")
		found := child(node, name)
		if found == nil {
			return nil
		}
		node, path = found[1], rest
		if list := unalias(node); indexed {
			at, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
			if err != nil || list.Kind != yamlv3.SequenceNode || at >= len(list.Content) {
				return nil
			}
			node = list.Content[at]
		}
	}
	return node
}

// unalias resolves an alias. It returns other nodes, and nil, unchanged.
func unalias(node *yamlv3.Node) *yamlv3.Node {
	if node != nil && node.Kind == yamlv3.AliasNode {
		return node.Alias
	}
	return node
}

// child returns the nodes of a key and its value.
func child(node *yamlv3.Node, name string) []*yamlv3.Node {
	node = unalias(node)
	if node.Kind != yamlv3.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i : i+2]
		}
	}
	return nil
}
