package podapi

import (
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// lineOf finds the line of the field at path, or of the nearest thing above it
// that is there.
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

// findKind finds the first value at path, whose indexes are left out as in
// JSON's type errors, that JSON calls kind; its line, or 0.
func findKind(node *yamlv3.Node, path, kind string) int {
	if node.Kind == yamlv3.SequenceNode {
		for _, element := range node.Content {
			if line := findKind(element, path, kind); line > 0 {
				return line
			}
		}
		return 0
	}
	if path == "" {
		if jsonKind(node) == kind {
			return node.Line
		}
		return 0
	}
	step, rest, _ := strings.Cut(path, ".")
	next := child(node, step)
	if next == nil {
		return 0
	}
	if rest == "" && jsonKind(next[1]) == kind {
		return next[0].Line
	}
	return findKind(next[1], rest, kind)
}

// jsonKind is what JSON's errors call a value.
func jsonKind(node *yamlv3.Node) string {
	switch node.Kind {
	case yamlv3.MappingNode:
		return "object"
	case yamlv3.SequenceNode:
		return "array"
	}
	switch node.Tag {
	case "!!int", "!!float":
		return "number"
	case "!!bool":
		return "bool"
	}
	return "string"
}

// child finds a key's node and its value's.
func child(node *yamlv3.Node, name string) []*yamlv3.Node {
	if node.Kind == yamlv3.AliasNode {
		node = node.Alias
	}
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
