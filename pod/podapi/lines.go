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

// nodeAt is the node of the field at path, nil where there is none.
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

// unalias is what node refers to, if it is an alias; of nil it is nil.
func unalias(node *yamlv3.Node) *yamlv3.Node {
	if node != nil && node.Kind == yamlv3.AliasNode {
		return node.Alias
	}
	return node
}

// child finds a key's node and its value's.
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
