package podapi

import (
	"errors"
	"fmt"

	yamlv3 "go.yaml.in/yaml/v3"
)

// The limits for one read. Files that people write stay far below them. They bound time and memory, because an alias, a
// replica or a document separator is short in a file but may expand to much.
const (
	maxText      = 3 << 20  // bytes of a file
	maxExpanded  = 16 << 20 // bytes of all documents with all aliases and replicas expanded
	maxDocuments = 1000
	maxDepth     = 100 // of nested lists and maps
	maxPods      = 1000
	maxClaims    = 1000
	maxFaults    = 100
	maxWords     = 1 << 10 // bytes of a fault's message, and of its field
	// nodeCost is the size of a value beside its text, in bytes.
	nodeCost = 64
	// claimCost is the size of a claim beside its text, in bytes.
	claimCost = 16 * nodeCost
)

var errExpanded = fmt.Errorf("it has more than %d MiB of text with all aliases and replicas expanded", maxExpanded>>20)

// scales weighs the nodes of one document. It remembers the weights of anchors, so that the work depends on the length
// of the text and not on its expansion.
type scales struct {
	anchors map[*yamlv3.Node]weight
	// at is the line at which weigh failed.
	at int
	// misplaced are duplicate keys of maps, and merges that would override earlier keys.
	misplaced []*yamlv3.Node
}

// weight is the size and the nesting depth of a value with all aliases expanded. The weight of an incomplete anchor is
// zero.
type weight struct{ size, depth int }

// weigh returns an error if node is too large, too deep, or contains itself.
func (s *scales) weigh(node *yamlv3.Node) (weight, error) {
	if node.Kind == yamlv3.AliasNode {
		// The anchor precedes the alias and has been weighed.
		whole := s.anchors[node.Alias]
		if whole.size == 0 {
			s.at = node.Line
			return weight{}, errors.New("an anchor contains itself")
		}
		return whole, nil
	}
	s.keys(node)
	whole := weight{size: nodeCost + len(node.Value)}
	for _, child := range node.Content {
		part, err := s.weigh(child)
		if err != nil {
			return weight{}, err
		}
		whole = weight{size: whole.size + part.size, depth: max(whole.depth, part.depth+1)}
		// Check at each step, so that the sums cannot overflow.
		if whole.size > maxExpanded {
			s.at = child.Line
			return weight{}, errExpanded
		}
		if whole.depth > maxDepth {
			s.at = child.Line
			return weight{}, fmt.Errorf("lists and maps are nested more than %d deep", maxDepth)
		}
	}
	if node.Anchor != "" {
		s.anchors[node] = whole
	}
	return whole, nil
}

// mergeKey is the key with entries to merge into its map.
const mergeKey = "<<"

// keys checks the keys of a map.
func (s *scales) keys(node *yamlv3.Node) {
	if node.Kind != yamlv3.MappingNode {
		return
	}
	seen := make(map[string]bool, len(node.Content)/2)
	for i := 0; i < len(node.Content); i += 2 {
		key := unalias(node.Content[i])
		if (seen[key.Value] || key.Value == mergeKey && i > 0) && len(s.misplaced) <= maxFaults {
			s.misplaced = append(s.misplaced, node.Content[i])
		}
		seen[key.Value] = true
	}
}

// weighed reports whether the document may be read. Its expanded size counts towards the limit.
func (d *decoder) weighed(root *yamlv3.Node) bool {
	s := &scales{anchors: map[*yamlv3.Node]weight{}}
	whole, err := s.weigh(root)
	if err != nil {
		d.add(s.at, "", errSyntax, err.Error())
		return false
	}
	for _, key := range s.misplaced {
		message := fmt.Sprintf("key %q is already set in this map", cut(unalias(key).Value))
		if unalias(key).Value == mergeKey {
			message = "a merge must be the first in its map"
		}
		d.add(key.Line, "", errSyntax, message)
	}
	return d.count(whole.size) && len(s.misplaced) == 0
}

// count adds size bytes to the total, and reports whether it is within the limit.
func (d *decoder) count(size int) bool {
	if d.expanded > maxExpanded {
		return false // the fault has been reported
	}
	if d.expanded += size; d.expanded > maxExpanded {
		d.add(0, "", errSyntax, errExpanded.Error())
		return false
	}
	return true
}

// cut shortens a text for a message.
func cut(text string) string {
	if len(text) <= maxWords {
		return text
	}
	return text[:maxWords] + "…"
}
