#!/bin/bash
#SBATCH --nodes=2
srun --mpi=pmix python scripts/performance/run_script.py --model_family_name llama -mr llama3_8b -g h100 --num_gpus 16 \
  -tp 2 -pp 1 -cp 2 -vp None -mb 1 -gb 128 --compute_dtype fp8_cs --recompute_modules core_attn,layernorm \
  model.tensor_model_parallel_size=2 train.global_batch_size=128 +mixed_precision=bf16_with_mxfp8_mixed
