"""A workflow file that uses every key, for tests that break it."""

LARGE = """\
schema_version: "1.0"
workflow:
  id: everything
  name: Everything
  version: "1.2.3"
  author: us
  description: All that a file can say
  integration: "{{ inputs.integration }}"
  model: openai/gpt-4o-mini
  options: {fast: true, note: "{{ inputs.spec }}"}
requires:
  speckit_version: ">=0.8.5"
  integrations: {any: [claude, gemini]}
inputs:
  spec: {type: string, required: true, prompt: What to build}
  count: {type: number, default: 5}
  loud: {type: boolean, default: "no"}
  scope: {type: string, default: full, enum: [full, part]}
  integration: {type: string, default: auto, enum: [claude, gemini]}
  verdict: {type: string, default: "", enum: ["", approve, reject]}
steps:
  - id: specify
    command: speckit.specify
    integration: "{{ inputs.integration }}"
    model: sonnet
    input: {args: "{{ inputs.spec }}"}
    options: {max: 3}
    integration_args: [--fast, "{{ inputs.scope }}"]
    integration_options: {skills: true}
    capture: true
    capture_max_bytes: 4096
  - id: ask
    type: prompt
    prompt: "Review {{ inputs.spec }}"
    system: Be brief
    temperature: 0.2
    max_tokens: 200
    output_schema: {type: object, properties: {ok: {type: boolean}}}
    retry: 2
    timeout: 12.5
    budget: 50req,1usd
    lane: openai
  - id: test
    type: shell
    run: |
      set -e
      echo "{{ inputs.spec }}"
      exit 0
    timeout: 60
    output_format: json
    continue_on_error: true
    effect: idempotent
  - id: count
    type: python
    call: pkg.module:function
    with: {number: "{{ inputs.count }}", names: [a, b]}
    needs: [ask]
  - id: review
    type: gate
    message: "Look at {{ steps.ask.output.text }}"
    options: [Approve, Reject]
    on_reject: retry
    show_file: "{{ steps.test.output.stdout }}"
    verdict_input: verdict
    needs: [count, test]
  - id: branch
    type: if
    condition: "{{ inputs.count > 3 }}"
    then:
      - {id: yes-branch, type: shell, run: "true"}
    else:
      - {id: no-branch, type: shell, run: "false"}
  - id: route
    type: switch
    expression: "{{ steps.review.output.choice }}"
    cases:
      Approve:
        - {id: approved, command: speckit.plan}
      1: []
      true: []
      on: []
    default:
      - {id: fallback, type: gate, message: 3}
  - id: again
    type: while
    condition: "{{ steps.test.output.exit_code != 0 }}"
    max_iterations: 5
    steps:
      - {id: fix, command: speckit.implement}
  - id: once-more
    type: do-while
    condition: "false"
    steps:
      - {id: revise, command: speckit.specify}
  - id: spread
    type: fan-out
    items: "{{ steps.ask.output.data }}"
    max_concurrency: "{{ inputs.count }}"
    min_success: 0.5
    max_failures: 3
    canary: {items: 2, min_success: 0.5}
    key: "{{ item.id }}"
    steps:
      - {id: one, type: shell, run: "echo {{ item }}"}
      - {id: two, type: shell, run: "echo {{ steps.one.output.stdout }}"}
  - id: spread-again
    type: fan-out
    items: [1, 2, {a: "{{ inputs.spec }}"}]
    step:
      type: shell
      run: echo '{{ item }}'
  - id: gather
    type: fan-in
    wait_for: [spread, spread-again]
    output: {all: "{{ fan_in.results }}"}
  - id: draw
    type: sample
    sample:
      prompt: "Name a colour like {{ inputs.spec }}"
      checks: [max-words 3]
      breadth: 3
outputs:
  colour: {value: "{{ steps.draw.output.text }}"}
  fixed_one: {value: 3}
"""
